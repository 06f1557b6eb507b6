"""The front desk: one visit is one scope, the guest book outlives them all."""

from collections.abc import AsyncIterator

from examples.hello.greeting import Greeter, GreetingModule
from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.di import Module, Provider, module


class GuestBook:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.is_open = False


async def open_guest_book() -> AsyncIterator[GuestBook]:
    """A resource: opened before the provider boots, closed when the application stops."""
    book = GuestBook()
    book.is_open = True
    yield book
    book.is_open = False


class Desk:
    def __init__(self, greeter: Greeter, book: GuestBook) -> None:
        self._greeter, self._book = greeter, book

    def welcome(self, who: str) -> str:
        self._book.names.append(who)
        return f"{self._greeter.greet(who)}! You are guest number {len(self._book.names)}."


class DeskProvider(Provider):
    async def register(self, container: ContainerRegistrarProtocol) -> None:
        container.singleton(GuestBook, factory=open_guest_book)
        container.scoped(Desk)

    async def boot(self, container: BootContainerProtocol) -> None:
        self.book = await container.resolve(GuestBook)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        guests = len(self.book.names)
        return HealthCheckResult(component=self.name, message=f"book open, {guests} guests")


@module(imports=[GreetingModule], providers=[DeskProvider], exports=[Desk])
class DeskModule(Module):
    pass
