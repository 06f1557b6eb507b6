"""Which backends the bus has, and which of them is meant when none is named."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from attrs import Attribute, field, frozen

from lexigram.config import BaseConfig
from lexigram.queue.constants import CONFIG_SECTION


@frozen(kw_only=True)
class NamedQueueConfig:
    """One backend of the bus, known by its name."""

    name: str
    # The backend that is meant when no name is given; without any, the first one is.
    primary: bool = False


def _as_tuple(backends: Iterable[NamedQueueConfig]) -> tuple[NamedQueueConfig, ...]:
    return tuple(backends)


def _names_are_clear(_: object, __: Attribute[Any], backends: tuple[NamedQueueConfig, ...]) -> None:
    names = [backend.name for backend in backends]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two backends are named {', '.join(twice)}")
    primaries = [backend.name for backend in backends if backend.primary]
    if len(primaries) > 1:
        raise ValueError(f"only one backend can be primary, not {' and '.join(primaries)}")


@frozen(kw_only=True)
class QueueConfig(BaseConfig):
    """Section ``queue``: the backends of the bus."""

    config_section: ClassVar[str] = CONFIG_SECTION

    backends: tuple[NamedQueueConfig, ...] = field(
        default=(), converter=_as_tuple, validator=_names_are_clear
    )

    @classmethod
    def from_named_backend(cls, entry: NamedQueueConfig) -> QueueConfig:
        """The configuration of a bus with one backend."""
        return cls(backends=(entry,))

    @property
    def primary(self) -> NamedQueueConfig | None:
        """The backend used when none is named: the marked one, else the first, else None."""
        marked = (backend for backend in self.backends if backend.primary)
        return next(marked, self.backends[0] if self.backends else None)
