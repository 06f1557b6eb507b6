"""What the type checkers say about the container; read by them, never run."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Protocol, assert_type

from lexigram.contracts.core.di import (
    BootContainerProtocol,
    ContainerRegistrarProtocol,
    ContainerResolverProtocol,
    ScopeProtocol,
)
from lexigram.di import (
    Arg,
    AsyncFactory,
    Container,
    DynamicModule,
    Factory,
    Lazy,
    Module,
    Named,
    Provider,
    Resolver,
    Scope,
    global_module,
    injectable,
    module,
    scoped,
    singleton,
    transient,
    unbound,
)
from lexigram.di._resolver import BootContainer, Override


class Greeter(Protocol):
    def greet(self, who: str) -> str: ...


class English:
    def greet(self, who: str) -> str:
        return f"hello {who}"


class Desk:
    def __init__(self, greeter: Greeter) -> None:
        self.greeter = greeter


def get(container: Container) -> None:
    assert_type(container.get(Greeter), Greeter)
    assert_type(container.get(English), English)
    assert_type(container.get(Annotated[Greeter, Named("backup")]), Greeter)
    assert_type(container.get(list[Greeter]), list[Greeter])
    assert_type(container.get(Greeter | None), Greeter | None)
    assert_type(container.get(Factory[Desk]), Factory[Desk])
    assert_type(container.get(Factory[Desk])(), Desk)
    assert_type(container.get(Lazy[Desk])(), Desk)
    token = "token".upper()
    assert_type(container.get(token), Any)


async def resolve(container: Container) -> None:
    assert_type(await container.resolve(Greeter), Greeter)
    assert_type(await container.resolve(Annotated[Greeter, Named("backup")]), Greeter)
    assert_type(await container.resolve(list[Greeter]), list[Greeter])
    assert_type(await container.resolve_optional(Greeter), Greeter | None)
    assert_type(await container.resolve_all(Greeter), list[Greeter])
    token = "token".upper()
    assert_type(await container.resolve(token), Any)


async def views(container: Container, greeting: type[Module]) -> None:
    view = container.of(greeting)
    assert_type(view, Resolver)
    assert_type(view.get(Greeter), Greeter)
    assert_type(await view.resolve(Greeter), Greeter)


async def in_a_scope(container: Container) -> None:
    async with container.scope() as scope:
        assert_type(scope, Scope)
        assert_type(scope.get(Greeter), Greeter)
        assert_type(scope.get(Annotated[Greeter, Named("backup")]), Greeter)
        assert_type(scope.get(list[Greeter]), list[Greeter])
        assert_type(await scope.resolve(Greeter), Greeter)
        assert_type(await scope.resolve_optional(Greeter), Greeter | None)
        assert_type(await scope.resolve_all(Greeter), list[Greeter])
        token = "token".upper()
        assert_type(scope.get(token), Any)
    with container.scope() as sync_scope:
        assert_type(sync_scope.get(Greeter), Greeter)


async def entries(container: Container) -> None:
    async def handle(desk: Desk, message: Arg[str]) -> int:
        assert_type(message, str)
        return 3

    def plain(desk: Desk) -> str:
        return "done"

    assert_type(await container.entry(handle, given=["message"])("hello"), int)
    assert_type(container.entry(plain), Callable[..., str])
    assert_type(container.entry(plain)(), str)
    assert_type(await container.call(handle, message="hello"), int)
    assert_type(await container.call(plain), str)


async def overrides(container: Container) -> None:
    async with container.override(Greeter, English()) as fake:
        assert_type(fake, Greeter)
    with container.override(English, English()) as english:
        assert_type(english, English)
    assert_type(container.override(Greeter, English()), Override[Greeter])
    token = "token".upper()
    async with container.override(token, 3) as number:
        assert_type(number, int)


def contracts(
    container: Container, view: BootContainer, scope: Scope, registrar: ContainerRegistrarProtocol
) -> None:
    as_registrar: ContainerRegistrarProtocol = container
    as_resolver: ContainerResolverProtocol = container
    as_boot: BootContainerProtocol = view
    as_scope: ScopeProtocol = scope
    assert_type(as_resolver.get(Greeter), Greeter)
    assert_type(as_scope.get(Greeter), Greeter)
    assert_type(as_boot.get(Greeter), Greeter)
    as_registrar.singleton(Greeter, English, when=unbound)
    registrar.scoped(Desk)


class GreetingProvider(Provider):
    async def register(self, container: ContainerRegistrarProtocol) -> None:
        container.singleton(Greeter, English)
        container.transient(Desk, factory=Desk, name="front")
        container.bind("limit", 3)
        container.decorate(Greeter, Loud)
        container.promise(Desk)

    async def boot(self, container: BootContainerProtocol) -> None:
        assert_type(await container.resolve(Greeter), Greeter)
        assert_type(container.get(Annotated[Greeter, Named("x")]), Greeter)
        container.bind(Desk, Desk(await container.resolve(Greeter)))


class Loud:
    def __init__(self, inner: Greeter) -> None:
        self.inner = inner

    def greet(self, who: str) -> str:
        return self.inner.greet(who).upper()


@module(providers=[GreetingProvider], exports=[Greeter])
class GreetingModule(Module):
    @classmethod
    def stub(cls) -> DynamicModule:
        return DynamicModule(module=cls, providers=[GreetingProvider], exports=[Greeter])


@global_module
@module(imports=[GreetingModule.stub(), GreetingModule])
class Everywhere(Module): ...


@module
class Bare(Module): ...


@singleton
class One: ...


@scoped
class Two: ...


@transient
class Three: ...


@injectable
class Four: ...


@injectable(lifetime="scoped")
class Five: ...


assert_type(One(), One)
assert_type(Two(), Two)
assert_type(Three(), Three)
assert_type(Four(), Four)
assert_type(Five(), Five)
assert_type(Bare, type[Bare])
assert_type(GreetingModule.stub(), DynamicModule)


class Letter:
    def __init__(self, to: Arg[str]) -> None:
        assert_type(to, str)


class Writer:
    def __init__(
        self, letters: Factory[Letter], slow: AsyncFactory[Letter], all_: list[Letter]
    ) -> None:
        assert_type(letters(to="you"), Letter)
        self.slow = slow

    async def write(self) -> Letter:
        assert_type(await self.slow(to="you"), Letter)
        return await self.slow(to="me")


async def session() -> AsyncIterator[English]:
    yield English()
