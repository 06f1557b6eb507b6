"""Keeps letters: the contract of a store, and the one in memory."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from lexigram.ai.workers.dlq.letters import Letter, LetterState
from lexigram.ai.workers.types import FailureCategory

# From what is known to what is known then: the same object keeps it, None forgets it.
Change: TypeAlias = Callable[[Letter | None], Letter | None]


class LetterStore(Protocol):
    """Letters by source and id, and counts of what was done with them."""

    async def change(self, source: str, letter_id: str, change: Change) -> Letter | None:
        """Replace one letter by ``change(old)`` and return that; nobody comes in between.

        ``change`` may be called more than once; the last call counts.
        """
        ...

    async def find(
        self,
        *,
        letter_id: str | None = None,
        source: str | None = None,
        states: Collection[LetterState] = tuple(LetterState),
        category: FailureCategory | None = None,
        due_before: float | None = None,
        untold: bool = False,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[Letter]:
        """Letters, the latest failure first.

        ``due_before`` limits to those that may be tried again by then, ``untold`` to those that
        will not be and that nobody was told of.
        """
        ...

    async def counts(self) -> Mapping[tuple[str, str], int]:
        """How many letters there are of each category and state."""
        ...

    async def add_figure(self, name: str, amount: int = 1) -> None:
        """Add to a sum that outlives the letters."""
        ...

    async def figures(self) -> Mapping[str, int]:
        """All sums."""
        ...


class MemoryLetters:
    """Letters of this process; gone with it."""

    def __init__(self) -> None:
        self._letters: dict[tuple[str, str], Letter] = {}
        self._figures: Counter[str] = Counter()

    async def change(self, source: str, letter_id: str, change: Change) -> Letter | None:
        """Replace one letter."""
        new = change(self._letters.get((source, letter_id)))
        if new is None:
            self._letters.pop((source, letter_id), None)
        else:
            self._letters[source, letter_id] = new
        return new

    async def find(
        self,
        *,
        letter_id: str | None = None,
        source: str | None = None,
        states: Collection[LetterState] = tuple(LetterState),
        category: FailureCategory | None = None,
        due_before: float | None = None,
        untold: bool = False,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[Letter]:
        """Letters, the latest failure first."""
        wanted = (
            letter
            for letter in self._letters.values()
            if letter_id in {None, letter.id}
            and source in {None, letter.source}
            and letter.state in states
            and category in {None, letter.category}
            and (due_before is None or letter.is_due(due_before))
            and (not untold or letter.is_untold)
        )
        page = heapq.nlargest(offset + limit, wanted, key=_latest)
        return page[offset:]

    async def counts(self) -> Mapping[tuple[str, str], int]:
        """How many letters there are of each category and state."""
        kinds = ((each.category.value, each.state.value) for each in self._letters.values())
        return dict(Counter(kinds))

    async def add_figure(self, name: str, amount: int = 1) -> None:
        """Add to a sum."""
        self._figures[name] += amount

    async def figures(self) -> Mapping[str, int]:
        """All sums."""
        return dict(self._figures)


def _latest(letter: Letter) -> tuple[float, str, str]:
    return letter.last_failure, letter.id, letter.source
