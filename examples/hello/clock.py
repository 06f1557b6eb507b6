"""The time of day, as a module of its own so that a test can stop it."""

from datetime import UTC, datetime
from typing import Protocol

from lexigram.contracts.core.di import ContainerRegistrarProtocol
from lexigram.di import DynamicModule, Module, Provider, module


class Clock(Protocol):
    def now(self) -> datetime: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC).astimezone()


class StoppedClock:
    def __init__(self, time: datetime) -> None:
        self.time = time

    def now(self) -> datetime:
        return self.time


class ClockProvider(Provider):
    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self.clock = clock

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        container.singleton(Clock, self.clock or SystemClock)


@module(providers=[ClockProvider], exports=[Clock])
class ClockModule(Module):
    @classmethod
    def stub(cls, time: datetime = datetime(2026, 1, 1, 9, 30, tzinfo=UTC)) -> DynamicModule:
        """A clock that stands still."""
        provider = ClockProvider(StoppedClock(time))
        return DynamicModule(module=cls, providers=[provider], exports=[Clock])
