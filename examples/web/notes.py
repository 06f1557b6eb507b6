"""The notes, and what can go wrong with them."""

from attrs import frozen

from lexigram.contracts.core.di import ContainerRegistrarProtocol
from lexigram.contracts.core.errors import DomainError, NotFoundError
from lexigram.di import Module, Provider, module


class NoteMissingError(NotFoundError):
    code = "NOTES_001"


class NoteTakenError(DomainError):
    code = "NOTES_002"


@frozen(kw_only=True)
class Note:
    name: str
    text: str


class Notebook:
    """All notes by name."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}

    def write(self, note: Note) -> None:
        if note.name in self._notes:
            raise NoteTakenError(f"there is a note {note.name} already")
        self._notes[note.name] = note

    def read(self, name: str) -> Note:
        if name not in self._notes:
            raise NoteMissingError(f"there is no note {name}")
        return self._notes[name]


class NotesProvider(Provider):
    async def register(self, container: ContainerRegistrarProtocol) -> None:
        container.singleton(Notebook)


@module(providers=[NotesProvider], exports=[Notebook])
class NotesModule(Module):
    pass
