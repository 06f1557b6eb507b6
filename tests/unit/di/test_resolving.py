"""What a container hands out: get, resolve, call, and the views of it."""

from typing import Annotated, Protocol

import pytest

from lexigram.contracts.core.di import (
    BootContainerProtocol,
    ContainerRegistrarProtocol,
    ContainerResolverProtocol,
    ScopeProtocol,
)
from lexigram.di import Arg, Container, Factory, Named, Provider, Scope
from lexigram.di.errors import (
    AmbiguousDependencyError,
    AsyncDependencyError,
    CircularDependencyError,
    RegistrationError,
    RuntimeArgumentError,
    ScopedResolutionError,
    UnresolvableDependencyError,
)


class Greeter(Protocol):
    def greet(self) -> str: ...


class English:
    def greet(self) -> str:
        return "hello"


class French(English):
    def greet(self) -> str:
        return "salut"


class Clock: ...


class Session: ...


class Slow: ...


async def slow() -> Slow:
    return Slow()


class OnSlow:
    def __init__(self, slow: Slow) -> None:
        self.slow = slow


def everything(c):
    c.singleton(Greeter, English)
    c.scoped(Session)
    c.transient(Clock)
    c.singleton(Slow, factory=slow)
    c.singleton(OnSlow)


def test_the_container_and_its_views_keep_their_contracts(make):
    container = make(everything)
    assert isinstance(container, ContainerRegistrarProtocol)
    assert isinstance(container, ContainerResolverProtocol)
    assert isinstance(container.scope(), ScopeProtocol)
    view = container.boot_view(container.modules.root, Provider(name="x"))
    assert isinstance(view, BootContainerProtocol)


def test_get_returns_the_same_singleton_and_new_transients(make):
    container = make(everything)
    assert container.get(Greeter) is container.get(Greeter)
    assert container.get(Clock) is not container.get(Clock)


def test_class_singletons_are_built_on_first_use_only(make):
    built = []

    class Eager:
        def __init__(self) -> None:
            built.append(self)

    container = make(lambda c: c.singleton(Eager))
    assert built == []
    container.get(Eager)
    container.get(Eager)
    assert len(built) == 1


async def test_get_and_resolve_give_the_same_singleton(make):
    container = make(everything)
    assert await container.resolve(Greeter) is container.get(Greeter)


def test_get_refuses_what_needs_await_until_it_is_started(make):
    container = make(everything)
    with pytest.raises(AsyncDependencyError, match="building Slow needs await"):
        container.get(OnSlow)


async def test_get_gives_what_was_awaited_before(make):
    container = make(everything)
    slow = await container.resolve(Slow)
    assert container.get(Slow) is slow
    assert container.get(OnSlow).slow is slow


async def test_get_refuses_a_transient_that_needs_await(make):
    container = make(lambda c: c.transient(Slow, factory=slow))
    with pytest.raises(AsyncDependencyError, match=r"use `await container.resolve\(Slow\)`"):
        container.get(Slow)
    with pytest.raises(AsyncDependencyError):
        container.provider(Slow)()
    assert isinstance(await container.resolve(Slow), Slow)


async def test_a_scoped_service_is_refused_outside_a_scope(make):
    container = make(everything)
    for ask in (container.get, container.resolve, container.resolve_optional):
        with pytest.raises(
            ScopedResolutionError, match="Session is scoped and was asked for outside a scope"
        ):
            await ask(Session)
    with pytest.raises(ScopedResolutionError):
        container.provider(Session)()


def test_what_nothing_provides_is_refused_with_near_matches(make):
    class Greeters: ...

    with pytest.raises(UnresolvableDependencyError) as caught:
        make(everything).get(Greeters)
    assert str(caught.value) == (
        "[LEX_ERR_DI_004] nothing provides Greeters (near: Greeter (bound in app))\n"
        "→ Fix: bind it:  container.singleton(Greeters, ...)  in app"
    )
    assert isinstance(caught.value, LookupError)


def test_what_is_bound_twice_is_refused_where_one_is_asked_for(make):
    def register(c):
        c.singleton(Greeter, English)
        c.singleton(Greeter, French)

    with pytest.raises(AmbiguousDependencyError, match="app can see 2 bindings of Greeter"):
        make(register).get(Greeter)


async def test_resolve_optional_is_none_for_what_nothing_provides(make):
    class Nowhere: ...

    container = make(everything)
    assert await container.resolve_optional(Nowhere) is None
    assert await container.resolve_optional("token") is None
    assert await container.resolve_optional(Greeter) is container.get(Greeter)
    async with container.scope() as scope:
        assert await scope.resolve_optional(Nowhere) is None
        assert await scope.resolve_optional(Session) is scope.get(Session)


async def test_resolve_all_gives_named_unnamed_and_subclasses_in_declared_order(make):
    """Defect 9: the old line left named bindings out."""

    class German(English):
        def greet(self) -> str:
            return "hallo"

    def register(c):
        c.singleton(English, name="second", factory=lambda: French())
        c.transient(German)
        c.singleton(English)
        c.singleton(Clock)

    container = make(register)
    found = await container.resolve_all(English)
    assert [item.greet() for item in found] == ["salut", "hallo", "hello"]
    assert found[2] is container.get(English)


async def test_resolve_all_matches_protocols_by_what_was_bound_not_by_shape(make):
    def register(c):
        c.singleton(English)  # looks like a Greeter, but nobody said it is one
        c.singleton(Greeter, French)

    assert [type(item) for item in await make(register).resolve_all(Greeter)] == [French]


async def test_resolve_all_is_empty_when_there_is_nothing(make):
    assert await make(everything).resolve_all(OSError) == []


async def test_resolve_all_may_ask_for_one_name(make):
    def register(c):
        c.singleton(Greeter, English)
        c.singleton(Greeter, French, name="x")

    found = await make(register).resolve_all(Annotated[Greeter, Named("x")])
    assert [type(item) for item in found] == [French]


async def test_resolve_all_starts_what_needs_await_and_builds_in_its_scope(make):
    def register(c):
        c.transient(OnSlow)
        c.singleton(Slow, factory=slow)
        c.scoped(Session)

    container = make(register)
    [on_slow] = await container.resolve_all(OnSlow)
    assert on_slow.slow is container.get(Slow)
    with pytest.raises(ScopedResolutionError):
        await container.resolve_all(Session)
    async with container.scope() as scope:
        assert await scope.resolve_all(Session) == [scope.get(Session)]


async def test_every_form_a_parameter_may_have_can_be_asked_for_directly(make):
    class Nowhere: ...

    def register(c):
        everything(c)
        c.singleton(Greeter, French, name="x")

    container = make(register)
    assert [item.greet() for item in container.get(list[Greeter])] == ["hello", "salut"]
    assert container.get(Nowhere | None) is None
    assert container.get(Greeter | None) is container.get(Greeter)
    assert isinstance(container.get(Factory[Clock])(), Clock)
    async with container.scope() as scope:
        assert scope.get(list[Session]) == [await scope.resolve(Session)]
        assert await scope.resolve(Session | None) is scope.get(Session)
    with pytest.raises(ScopedResolutionError):
        container.get(list[Session])


def test_what_takes_run_time_arguments_is_refused_without_them(make):
    class Letter:
        def __init__(self, clock: Clock, to: Arg[str]) -> None:
            self.to = to

    container = make(lambda c: (c.transient(Clock), c.transient(Letter)))
    with pytest.raises(RuntimeArgumentError) as caught:
        container.get(Letter)
    assert str(caught.value) == (
        "[LEX_ERR_DI_104] Letter takes to at run time\n"
        "→ Fix: ask for Factory[Letter] and call it with to=..."
    )
    assert container.get(Factory[Letter])(to="you").to == "you"


# call


async def test_call_fills_what_was_not_given(make):
    container = make(everything)

    def plain(prefix: str, greeter: Greeter, *, mark: str, clock: Clock) -> str:
        assert isinstance(clock, Clock)
        return prefix + greeter.greet() + mark

    async def waits(greeter: Greeter, slow: Slow, session: Session) -> tuple:
        return greeter, slow, session

    assert await container.call(plain, ">", mark="!") == ">hello!"
    assert await container.call(plain, ">", French(), mark="!") == ">salut!"
    assert await container.call(plain, prefix=">", greeter=French(), mark="!") == ">salut!"
    greeter, slow, session = await container.call(waits)
    assert greeter is container.get(Greeter)
    assert slow is container.get(Slow)
    assert isinstance(session, Session)


async def test_call_opens_a_scope_of_its_own_and_tears_it_down(make):
    ended = []

    async def session():
        yield Session()
        ended.append("session")

    container = make(lambda c: c.scoped(Session, factory=session))

    async def work(one: Session, two: Session) -> bool:
        assert ended == []
        return one is two

    assert await container.call(work)
    assert ended == ["session"]


async def test_call_in_a_scope_uses_that_scope(make):
    container = make(everything)
    async with container.scope() as scope:
        assert await scope.call(lambda session: session, scope.get(Session)) is scope.get(Session)

        def work(session: Session) -> Session:
            return session

        assert await scope.call(work) is scope.get(Session)


async def test_call_passes_extra_arguments_on_and_refuses_those_nobody_takes(make):
    container = make(everything)

    def takes_all(greeter: Greeter, *rest: int, **named: int) -> tuple:
        return greeter, rest, named

    def takes_one(greeter: Greeter) -> Greeter:
        return greeter

    assert await container.call(takes_all, "g", 1, 2, three=3) == ("g", (1, 2), {"three": 3})
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        await container.call(takes_one, "g", "more")
    with pytest.raises(TypeError, match="unexpected keyword argument 'typo'"):
        await container.call(takes_one, typo=1)
    with pytest.raises(TypeError, match="got greeter by position and by keyword"):
        await container.call(takes_one, "g", greeter="h")


async def test_call_works_with_methods_objects_and_classes(make):
    container = make(everything)

    class Service:
        def method(self, greeter: Greeter) -> str:
            return greeter.greet()

        def __call__(self, greeter: Greeter) -> str:
            return greeter.greet() + "!"

        @classmethod
        def of_class(cls, greeter: Greeter) -> str:
            return greeter.greet() + "?"

    assert await container.call(Service().method) == "hello"
    assert await container.call(Service()) == "hello!"
    assert await container.call(Service.of_class) == "hello?"
    assert isinstance(await container.call(OnSlow), OnSlow)


async def test_call_names_what_it_cannot_fill(make):
    def work(missing: OSError) -> None: ...

    with pytest.raises(Exception, match="work asks for what it cannot have") as caught:
        await make(everything).call(work)
    assert "nothing provides OSError" in str(caught.value)
    assert "work(missing)" in str(caught.value)


async def test_a_generator_cannot_be_called_since_its_scope_would_end_first(make):
    async def stream(greeter: Greeter):
        yield greeter

    container = make(everything)
    with pytest.raises(RegistrationError, match="stream is a generator"):
        await container.call(stream)
    with pytest.raises(RegistrationError, match="stream is a generator"):
        container.entry(stream)


# the container itself


def test_the_container_may_be_asked_for(make):
    class Locates:
        def __init__(self, container: Container) -> None:
            self.container = container

    class ByContract:
        def __init__(self, container: ContainerResolverProtocol) -> None:
            self.container = container

    container = make(lambda c: (c.singleton(Locates), c.singleton(ByContract)))
    assert container.get(Locates).container is container
    assert container.get(ByContract).container is container


def test_a_module_is_handed_its_own_view_of_the_container(a_module, compose):
    class Locates:
        def __init__(self, container: ContainerResolverProtocol) -> None:
            self.clock = container.get(Clock)

    shop = a_module("Shop", lambda c: (c.singleton(Clock), c.singleton(Locates)))
    container = compose(shop)
    assert container.of(shop).get(Locates).clock is container.of(shop).get(Clock)


async def test_a_scope_may_be_asked_for(make):
    class Works:
        def __init__(self, scope: Scope, by_contract: ScopeProtocol) -> None:
            self.scope, self.by_contract = scope, by_contract

    container = make(lambda c: c.transient(Works))
    async with container.scope() as scope:
        works = await scope.resolve(Works)
        assert works.scope is works.by_contract is scope
    with pytest.raises(ScopedResolutionError, match="Works needs a scope"):
        container.get(Works)


def test_a_build_that_asks_the_container_for_itself_is_a_cycle_not_a_hang(make):
    class Egg: ...

    class Hen:
        def __init__(self, egg: Egg) -> None: ...

    def register(c):
        c.singleton(Hen)
        c.singleton(Egg, factory=lambda c: c.get(Hen))

    with pytest.raises(CircularDependencyError, match="building Egg asks the container for"):
        make(register).get(Hen)


async def test_an_async_build_that_asks_for_itself_is_a_cycle_not_a_hang(make):
    class Egg: ...

    class Hen:
        def __init__(self, egg: Egg) -> None: ...

    async def egg(container) -> Egg:
        return await container.resolve(Hen)

    def register(c):
        c.singleton(Hen)
        c.singleton(Egg, factory=egg)

    with pytest.raises(CircularDependencyError, match="building Egg asks the container for"):
        await make(register).resolve(Hen)


# boot view


async def test_the_boot_view_resolves_as_its_module(a_module, compose, provider):
    owner = provider(
        lambda c: (c.singleton(Clock), c.singleton(Slow, factory=slow), c.scoped(Session)),
        name="shop",
    )
    shop = a_module("Shop", marked=[owner])
    container = compose(shop)
    view = container.boot_view(container.modules.node(shop), owner)
    assert view.get(Clock) is container.of(shop).get(Clock)
    assert await view.resolve(Slow) is container.of(shop).get(Slow)
    assert await view.resolve_optional(OSError) is None
    assert await view.resolve_optional(Slow) is container.of(shop).get(Slow)
    assert await view.resolve_all(Clock) == [view.get(Clock)]
    assert view.sees(Clock)
    assert not view.sees(OSError)

    def work(clock: Clock) -> Clock:
        return clock

    assert await view.call(work) is view.get(Clock)
    assert view.entry(work)() is view.get(Clock)
    async with view.scope() as scope:
        assert scope.get(Session) is await scope.resolve(Session)


# of, provider, providers


def test_calling_a_provider_of_the_model_gives_what_the_container_gives(make):
    container = make(everything)
    assert container.provider(Greeter)() is container.get(Greeter)
    assert isinstance(container.provider(Clock)(), Clock)


def test_every_binding_is_a_provider_of_dependency_injector(make):
    from dependency_injector import providers

    container = make(lambda c: (everything(c), c.bind("limit", 3)))
    kinds = {
        Greeter: providers.Singleton,
        Session: providers.Factory,
        Clock: providers.Factory,
        "limit": providers.Object,
    }
    for service, kind in kinds.items():
        assert isinstance(container.provider(service), kind)
    assert container.provider(Greeter).provides is English
    assert container.provider(OnSlow).kwargs == {"slow": container.provider(Slow)}
    assert container.provider(Slow) in set(container.provider(OnSlow).traverse())


def test_the_providers_a_module_sees_are_listed(a_module, compose):
    hidden = a_module("Hidden", lambda c: (c.singleton(Clock), c.singleton(Slow)), exports=[Slow])
    container = compose(hidden)
    assert list(container.providers) == [Slow]
    assert len(container.of(hidden).providers) == 2
    assert Clock in container.of(hidden).providers
    assert Clock not in container.providers
    assert container.providers[Slow] is container.provider(Slow)
    assert Annotated[Slow, Named("x")] not in container.providers
    assert Annotated[Slow, "documented"] in container.providers


async def test_without_its_provider_in_the_model_a_service_cannot_be_resolved(make):
    """Decision D1.1: the model decides, nothing is resolved around it."""
    container = make(everything)
    on_slow = await container.resolve(OnSlow)

    async def work(on_slow: OnSlow) -> OnSlow:
        return on_slow

    entry = container.entry(work)
    assert await entry() is on_slow
    del container.providers[Slow]
    with pytest.raises(UnresolvableDependencyError, match="nothing provides Slow"):
        await container.resolve(Slow)
    for ask in (lambda: container.resolve(OnSlow), entry, lambda: container.call(work)):
        with pytest.raises(UnresolvableDependencyError, match="Slow was taken out of the model"):
            await ask()
    with pytest.raises(UnresolvableDependencyError, match="Slow was taken out of the model"):
        container.get(OnSlow)
    assert Slow not in container.providers
    assert container.get(Greeter).greet() == "hello"


async def test_an_async_factory_may_ask_for_a_list_with_async_members(make):
    async def counts(members: list[Slow], greeters: list[Greeter]) -> int:
        return len(members) + len(greeters)

    def register(c):
        c.singleton(Slow, factory=slow)
        c.transient(Slow, factory=slow, name="x")
        c.singleton(int, factory=counts)

    assert await make(register).resolve(int) == 2


def test_what_a_factory_made_by_hand_on_the_way_is_not_made_again(make):
    built = []

    class Late:
        def __init__(self) -> None:
            built.append(self)

    class Early:
        def __init__(self, late: Late) -> None:
            self.late = late

    class Top:
        def __init__(self, early: Early, late: Late) -> None:
            self.early, self.late = early, late

    def register(c):
        c.singleton(Top)
        c.singleton(Late)
        c.singleton(Early, factory=lambda c: Early(c.get(Late)))

    container = make(register)
    top = container.get(Top)
    assert top.early.late is top.late
    assert built == [top.late]


def test_the_fix_of_a_named_service_can_be_typed_as_it_is(make):
    container = make(lambda c: c.scoped(Session, name="x"))
    with pytest.raises(ScopedResolutionError) as caught:
        container.get(Annotated[Session, Named("x")])
    assert caught.value.hint == (
        'async with container.scope() as scope: await scope.resolve(Annotated[Session, Named("x")])'
    )


def test_the_root_is_a_module_like_others(make):
    from lexigram.di.module import Root

    container = make(everything)
    assert container.of(Root) is container
