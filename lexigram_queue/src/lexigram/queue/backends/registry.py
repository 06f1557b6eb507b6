"""Drivers by the name a configuration gives them; ours and those of others alike."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, TypeAlias

from lexigram.contracts.queue import QueueDriverProtocol, QueueProtocol
from lexigram.queue.backends.services import Services
from lexigram.queue.bus import BusOptions, BusQueue
from lexigram.queue.config import NamedQueueConfig
from lexigram.queue.errors import UnknownDriverError

ENTRY_POINTS = "lexigram.queue.drivers"

# Makes a driver, not connected, or a complete queue, from the entry of the configuration.
Maker: TypeAlias = Callable[[NamedQueueConfig, Services], QueueDriverProtocol | QueueProtocol]


class QueueDriverRegistry:
    """Knows how to make a backend: ``registry.create_backend(entry.driver, entry)``."""

    def __init__(self) -> None:
        self._loaders: dict[str, Callable[[], Maker]] = {}

    @classmethod
    def with_defaults(cls) -> QueueDriverRegistry:
        """All drivers that are installed, by entry point ``lexigram.queue.drivers``."""
        registry = cls()
        for point in entry_points(group=ENTRY_POINTS):
            registry._loaders[point.name] = point.load  # imported when it is first used
        return registry

    def register(self, name: str, maker: Maker) -> None:
        """Add a driver, or replace the one of that name."""
        self._loaders[name] = lambda: maker

    def names(self) -> list[str]:
        """The drivers it knows, sorted."""
        return sorted(self._loaders)

    def create_driver(
        self, driver: str, entry: NamedQueueConfig, services: Services | None = None
    ) -> QueueDriverProtocol | QueueProtocol:
        """What the maker of this name makes."""
        loader = self._loaders.get(driver)
        if loader is None:
            raise UnknownDriverError(
                f"Unsupported queue driver: {driver!r}",
                backend=entry.name,
                details={"driver": driver, "known": self.names()},
                hint=f"installed are {', '.join(self.names())}; drivers of others are found by "
                f"the entry point {ENTRY_POINTS}",
            )
        return loader()(entry, services or Services())

    def create_backend(
        self, driver: str, entry: NamedQueueConfig, services: Services | None = None, **parts: Any
    ) -> QueueProtocol:
        """A queue: the driver under the runtime, or the complete queue a maker made."""
        made = self.create_driver(driver, entry, services)
        if isinstance(made, QueueDriverProtocol):
            return BusQueue(made, name=entry.name, options=BusOptions.of(entry), **parts)
        return made
