"""Every way to record a binding, and what it gives."""

from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Annotated, Protocol

import pytest

from lexigram.di import Conditions, Container, Inject, Named, Provider, unbound
from lexigram.di.errors import ContainerError, PromiseError, RegistrationError


class Greeter(Protocol):
    def greet(self) -> str: ...


class English:
    def greet(self) -> str:
        return "hello"


class French:
    def greet(self) -> str:
        return "salut"


class Desk:
    def __init__(self, greeter: Greeter) -> None:
        self.greeter = greeter


@dataclass
class Clock:
    zone: str = "UTC"


LIFETIMES = ["singleton", "scoped", "transient"]


async def twice(container, service):
    """The service asked for twice in one scope, and once in another."""
    async with container.scope() as scope:
        one, two = await scope.resolve(service), await scope.resolve(service)
    async with container.scope() as scope:
        return one, two, await scope.resolve(service)


def check_lifetime(lifetime, one, two, other):
    assert (one is two) == (lifetime in {"singleton", "scoped"})
    assert (one is other) == (lifetime == "singleton")


def make_clock() -> Clock:
    return Clock("made")


async def make_clock_async() -> Clock:
    return Clock("awaited")


def yield_clock():
    yield Clock("yielded")


async def yield_clock_async():
    yield Clock("async yielded")


class MakesClocks:
    def __call__(self) -> Clock:
        return Clock("object")


class MakesClocksAsync:
    async def __call__(self) -> Clock:
        return Clock("async object")


def make_zone(zone: str) -> Clock:
    return Clock(zone)


@pytest.mark.parametrize("lifetime", LIFETIMES)
@pytest.mark.parametrize(
    ("factory", "zone"),
    [
        (make_clock, "made"),
        (make_clock_async, "awaited"),
        (yield_clock, "yielded"),
        (yield_clock_async, "async yielded"),
        (MakesClocks(), "object"),
        (MakesClocksAsync(), "async object"),
        (partial(make_zone, "partial"), "partial"),
        (partial(make_zone, zone="keyword"), "keyword"),
        (lambda: Clock("lambda"), "lambda"),
        (Clock, "UTC"),
    ],
)
async def test_a_factory_of_any_kind_builds_for_its_lifetime(make, lifetime, factory, zone):
    container = make(lambda c: getattr(c, lifetime)(Clock, factory=factory))
    async with container:
        one, two, other = await twice(container, Clock)
    assert one.zone == two.zone == other.zone == zone
    check_lifetime(lifetime, one, two, other)


@pytest.mark.parametrize("lifetime", LIFETIMES)
async def test_a_class_builds_itself(make, lifetime):
    container = make(lambda c: getattr(c, lifetime)(Clock))
    check_lifetime(lifetime, *await twice(container, Clock))


@pytest.mark.parametrize("lifetime", LIFETIMES)
async def test_a_class_builds_what_it_is_bound_to(make, lifetime):
    container = make(lambda c: getattr(c, lifetime)(Greeter, English))
    one, two, other = await twice(container, Greeter)
    assert isinstance(one, English)
    check_lifetime(lifetime, one, two, other)


@pytest.mark.parametrize("lifetime", LIFETIMES)
async def test_a_name_keeps_bindings_of_one_type_apart(make, lifetime):
    def register(c):
        getattr(c, lifetime)(Greeter, English)
        getattr(c, lifetime)(Greeter, French, name="backup")

    container = make(register)
    async with container.scope() as scope:
        assert (await scope.resolve(Greeter)).greet() == "hello"
        assert (await scope.resolve(Annotated[Greeter, Named("backup")])).greet() == "salut"


def test_a_function_given_as_implementation_is_a_factory(make):
    assert make(lambda c: c.singleton(Clock, make_clock)).get(Clock).zone == "made"


def test_a_partial_given_as_implementation_is_a_factory(make):
    container = make(lambda c: c.transient(Clock, partial(make_zone, "Oslo")))
    assert container.get(Clock).zone == "Oslo"


async def test_a_context_manager_function_is_the_generator_it_was_made_from(make):
    ended = []

    @contextmanager
    def opened():
        yield Clock("opened")
        ended.append("opened")

    @asynccontextmanager
    async def opened_async(clock: Clock):
        yield Desk(clock)
        ended.append("async")

    def register(c):
        c.singleton(Clock, factory=opened)
        c.scoped(Desk, factory=opened_async)

    async with make(register) as container, container.scope() as scope:
        assert (await scope.resolve(Desk)).greeter is container.get(Clock)
    assert ended == ["async", "opened"]


async def test_a_wrapped_factory_is_of_the_kind_it_wraps(make):
    def traced(function):
        @wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    factories = {"awaited": make_clock_async, "yielded": yield_clock, "made": make_clock}
    for zone, factory in factories.items():
        container = make(lambda c, factory=factory: c.singleton(Clock, factory=traced(factory)))
        assert (await container.resolve(Clock)).zone == zone

    async def work(clock: Clock) -> Clock:
        return clock

    entry = container.entry(traced(work))
    assert await entry() is container.get(Clock)


def test_an_instance_is_shared_as_it_is(make):
    clock = Clock()
    assert make(lambda c: c.singleton(Clock, clock)).get(Clock) is clock


@pytest.mark.parametrize("lifetime", ["scoped", "transient"])
def test_an_instance_is_refused_for_what_is_built_anew(lifetime):
    with pytest.raises(RegistrationError, match="Clock is .*, but .* is already built"):
        getattr(Container(), lifetime)(Clock, Clock())


def test_a_class_and_a_factory_together_are_refused():
    with pytest.raises(RegistrationError, match="both an implementation and a factory"):
        Container().singleton(Clock, Clock, factory=make_clock)


def test_a_token_without_anything_to_build_is_refused():
    with pytest.raises(RegistrationError, match='"clock" says nothing about how it is built'):
        Container().singleton("clock")


def test_a_factory_that_takes_one_bare_parameter_is_handed_the_container(make):
    def register(c):
        c.singleton(Greeter, French)
        c.singleton(Desk, factory=lambda c: Desk(c.get(Greeter)))

    container = make(register)
    assert container.get(Desk).greeter is container.get(Greeter)


async def test_a_factory_may_await_what_it_takes_from_the_container(make):
    async def desk(container) -> Desk:
        return Desk(await container.resolve(Greeter))

    def register(c):
        c.singleton(Greeter, factory=awaited_greeter)
        c.singleton(Desk, factory=desk)

    async def awaited_greeter() -> Greeter:
        return English()

    container = make(register)
    assert (await container.resolve(Desk)).greeter is await container.resolve(Greeter)


async def test_a_factory_that_raises_type_error_is_called_once(make):
    """Defect 9: the old line took a TypeError for a wrong signature and called again."""
    calls = []

    def broken(container):
        calls.append("sync")
        raise TypeError("not a signature problem")

    async def broken_async(container):
        calls.append("async")
        raise TypeError("not a signature problem")

    def register(c):
        c.singleton(Clock, factory=broken)
        c.singleton(Desk, factory=broken_async)

    container = make(register)
    with pytest.raises(TypeError, match="not a signature problem"):
        container.get(Clock)
    with pytest.raises(TypeError, match="not a signature problem"):
        await container.resolve(Desk)
    assert calls == ["sync", "async"]


async def test_registering_a_key_again_collects_instead_of_replacing(make):
    def register(c):
        c.singleton(Greeter, English)
        c.singleton(Greeter, French)

    greeters = await make(register).resolve_all(Greeter)
    assert [item.greet() for item in greeters] == ["hello", "salut"]


# bind


def test_a_class_may_be_bound_as_a_value(make):
    class Worker:
        def __init__(self, kind: Annotated[type, Inject("TaskWorkerClass")]) -> None:
            self.kind = kind

    def register(c):
        c.bind("TaskWorkerClass", English)
        c.singleton(Worker)

    container = make(register)
    assert container.get("TaskWorkerClass") is English
    assert container.get(Worker).kind is English
    assert container.get(Annotated[type, Inject("TaskWorkerClass")]) is English


def test_a_function_and_none_may_be_bound_as_values(make):
    def register(c):
        c.bind("callback", make_clock)
        c.bind("nothing", None)

    container = make(register)
    assert container.get("callback") is make_clock
    assert container.get("nothing") is None


def test_a_value_may_have_a_name(make):
    container = make(lambda c: c.bind(str, "Oslo", name="city"))
    assert container.get(Annotated[str, Named("city")]) == "Oslo"


# has


def test_has_tells_what_this_module_has_registered_so_far(a_module, compose):
    seen = {}

    def register(c):
        seen["before"] = c.has(Greeter)
        c.singleton(Greeter, English, name="x")
        seen["named"] = c.has(Greeter, name="x"), c.has(Greeter)

    def other(c):
        seen["other"] = c.has(Greeter, name="x")

    compose(a_module("First", register), a_module("Second", other))
    assert seen == {"before": False, "named": (True, False), "other": False}


# when


@pytest.mark.parametrize(
    ("when", "kept"),
    [
        (True, True),
        (False, False),
        (lambda: True, True),
        (lambda: False, False),
        (lambda conditions: conditions.has(Clock), True),
        (lambda conditions: conditions.has(Desk), False),
        (lambda conditions: conditions.has(Clock, name="x"), False),
        (lambda conditions: conditions.config["debug"], True),
    ],
)
async def test_when_decides_at_freeze_whether_a_binding_counts(when, kept):
    container = Container()
    container.config = {"debug": True}
    container.singleton(Greeter, English, when=when)
    container.singleton(Clock)
    container.freeze()
    assert (await container.resolve_optional(Greeter) is not None) == kept


def test_conditions_are_asked_once_and_only_at_freeze():
    asked = []
    container = Container()
    container.singleton(Greeter, English, when=lambda: asked.append("now") or True)
    assert asked == []
    container.freeze()
    container.get(Greeter)
    assert asked == ["now"]


def test_a_condition_sees_the_conditional_bindings_before_it(make):
    def register(c):
        c.singleton(Clock, when=lambda: True)
        c.singleton(Greeter, English, when=lambda conditions: conditions.has(Clock))

    assert make(register).get(Greeter).greet() == "hello"


def test_unbound_is_a_default_that_steps_back(make):
    def register(c):
        c.singleton(Greeter, English, when=unbound)
        c.singleton(Greeter, French)

    assert make(register).get(Greeter).greet() == "salut"


def test_unbound_serves_where_nobody_else_binds_the_key(make):
    def register(c):
        c.singleton(Greeter, English, when=unbound)
        c.singleton(Greeter, French, name="other")

    assert make(register).get(Greeter).greet() == "hello"


async def test_of_two_defaults_the_first_counts(make):
    def register(c):
        c.singleton(Greeter, English, when=unbound)
        c.singleton(Greeter, French, when=unbound)

    container = make(register)
    assert [item.greet() for item in await container.resolve_all(Greeter)] == ["hello"]


def test_a_default_of_the_application_yields_to_a_private_binding_of_a_module(
    a_module, compose, provider
):
    shop = a_module("Shop", lambda c: (c.singleton(Greeter, French), c.singleton(Desk)))
    defaults = provider(lambda c: c.singleton(Greeter, English, when=unbound), name="defaults")
    container = compose(shop, providers=[defaults])
    assert container.get(Greeter).greet() == "hello"
    assert container.of(shop).get(Desk).greeter.greet() == "salut"


def test_an_error_in_a_condition_names_the_registration():
    def fails(conditions: Conditions) -> bool:
        raise ZeroDivisionError

    container = Container()
    container.singleton(Greeter, English, when=fails)
    with pytest.raises(ZeroDivisionError) as caught:
        container.freeze()
    assert "raised by when= of Greeter, registered at " in caught.value.__notes__[0]
    assert "test_registering.py" in caught.value.__notes__[0]


# decorate


class Loud:
    def __init__(self, inner: Greeter, mark: Annotated[str, Named("mark")] = "!") -> None:
        self.inner, self.mark = inner, mark

    def greet(self) -> str:
        return self.inner.greet().upper() + self.mark


class Polite:
    def __init__(self, greeter: Greeter) -> None:
        self.inner = greeter

    def greet(self) -> str:
        return f"{self.inner.greet()}, please"


@pytest.mark.parametrize("lifetime", LIFETIMES)
async def test_decorators_wrap_in_the_order_they_were_given(make, lifetime):
    def register(c):
        getattr(c, lifetime)(Greeter, English)
        c.decorate(Greeter, Loud)
        c.decorate(Greeter, Polite)
        c.bind(str, "?", name="mark")

    container = make(register)
    one, two, other = await twice(container, Greeter)
    assert one.greet() == "HELLO?, please"
    check_lifetime(lifetime, one, two, other)


def test_a_decorator_may_be_a_function_or_a_lambda(make):
    def register(c):
        c.singleton(Greeter, English)
        c.decorate(Greeter, lambda inner: Polite(inner))
        c.decorate(Greeter, loudly)

    def loudly(inner: Greeter) -> Greeter:
        return Loud(inner)

    assert make(register).get(Greeter).greet() == "HELLO, PLEASE!"


async def test_a_decorator_may_be_async_or_a_generator(make):
    ended = []

    async def slow(inner: Greeter) -> Greeter:
        return Polite(inner)

    async def opened(inner: Greeter):
        yield Loud(inner)
        ended.append("teardown")

    def register(c):
        c.singleton(Greeter, English)
        c.decorate(Greeter, slow)
        c.decorate(Greeter, opened)

    async with make(register) as container:
        assert container.get(Greeter).greet() == "HELLO, PLEASE!"
        assert ended == []
    assert ended == ["teardown"]


def test_an_instance_may_be_decorated(make):
    english = English()

    def register(c):
        c.singleton(Greeter, english)
        c.decorate(Greeter, Loud)

    greeter = make(register).get(Greeter)
    assert greeter.greet() == "HELLO!"
    assert greeter.inner is english


def test_a_named_binding_is_decorated_apart_from_the_unnamed_one(make):
    def register(c):
        c.singleton(Greeter, English)
        c.singleton(Greeter, French, name="backup")
        c.decorate(Greeter, Loud, name="backup")

    container = make(register)
    assert container.get(Greeter).greet() == "hello"
    assert container.get(Annotated[Greeter, Named("backup")]).greet() == "SALUT!"


def test_a_module_may_decorate_what_it_imports_with_its_own_private_services(a_module, compose):
    class Volume:
        mark = "!!!"

    class Shouting:
        def __init__(self, volume: Volume, inner: Greeter) -> None:
            self.volume, self.inner = volume, inner

        def greet(self) -> str:
            return self.inner.greet() + self.volume.mark

    greeting = a_module("Greeting", lambda c: c.singleton(Greeter, English), exports=[Greeter])
    shouting = a_module(
        "Shouting",
        lambda c: (c.singleton(Volume), c.decorate(Greeter, Shouting)),
        imports=[greeting],
    )
    container = compose(shouting)
    assert container.get(Greeter).greet() == "hello!!!"
    assert container.of(greeting).get(Greeter).greet() == "hello!!!"


async def test_the_inner_service_of_a_decorator_is_not_collected(make):
    def register(c):
        c.singleton(Greeter, English)
        c.decorate(Greeter, Loud)

    assert len(await make(register).resolve_all(Greeter)) == 1


def test_decorating_what_is_not_there_is_a_problem_of_the_graph(make):
    with pytest.raises(ContainerError, match="app decorates Greeter, which it cannot see"):
        make(lambda c: c.decorate(Greeter, Loud))


def test_decorating_what_is_bound_twice_names_both(make):
    def register(c):
        c.singleton(Greeter, English)
        c.singleton(Greeter, French)
        c.decorate(Greeter, Loud)

    with pytest.raises(ContainerError, match="app can see 2 bindings of Greeter"):
        make(register)


def test_a_decorator_without_a_parameter_is_a_problem_of_the_graph(make):
    def register(c):
        c.singleton(Greeter, English)
        c.decorate(Greeter, French)

    with pytest.raises(ContainerError, match="French decorates Greeter but takes no parameter"):
        make(register)


def test_a_decorator_whose_signature_cannot_be_read_is_a_problem_of_the_graph(make):
    def register(c):
        c.singleton(Greeter, English)
        c.decorate(Greeter, max)

    with pytest.raises(ContainerError, match="max decorates Greeter but takes no parameter"):
        make(register)


# promise


class Connection:
    """Made in boot."""


class Database:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection


class ConnectionProvider(Provider):
    async def register(self, container):
        container.promise(Connection)
        container.singleton(Database)


def promising():
    """A frozen container with a promise, and the view its provider boots with."""
    container = Container()
    provider = ConnectionProvider()
    node = container.modules.root
    registrar = container.registrar(node, provider)
    registrar.promise(Connection)
    registrar.singleton(Database)
    container.freeze()
    return container, container.boot_view(node, provider), provider


async def test_a_promised_value_is_bound_in_boot_and_injected_everywhere():
    """Defect 4: in the old line nothing could be bound once the container was frozen."""
    container, view, provider = promising()
    assert container.broken_promises(provider) == ["Connection"]
    connection = Connection()
    view.bind(Connection, connection)
    assert container.broken_promises(provider) == []
    assert container.get(Connection) is connection
    assert (await container.resolve(Database)).connection is connection


async def test_a_promise_that_is_needed_before_it_is_kept_names_its_provider():
    container, _, _ = promising()
    for ask in (container.get, container.resolve):
        for service in (Connection, Database):
            with pytest.raises(
                PromiseError,
                match="Connection was promised by provider connection and is not bound",
            ):
                value = ask(service)
                await value


def test_a_promise_may_have_a_name():
    container = Container()
    container.promise(Connection, name="main")
    container.freeze()
    container.boot_view(container.modules.root, ConnectionProvider()).bind(
        Connection, "open", name="main"
    )
    assert container.get(Annotated[Connection, Named("main")]) == "open"


def test_a_value_that_was_not_promised_is_refused_in_boot():
    _, view, _ = promising()
    with pytest.raises(RegistrationError, match="Clock was bound during boot, but app has not"):
        view.bind(Clock, Clock())


def test_a_promise_may_be_decorated():
    container = Container()
    container.promise(Greeter)
    container.decorate(Greeter, Loud)
    container.freeze()
    container.boot_view(container.modules.root, ConnectionProvider()).bind(Greeter, English())
    assert container.get(Greeter).greet() == "HELLO!"


# freeze


def test_nothing_can_be_registered_once_frozen(make):
    container = make(lambda c: c.singleton(Clock))
    with pytest.raises(RegistrationError, match="Greeter was registered after the container froze"):
        container.singleton(Greeter, English)
    with pytest.raises(RegistrationError, match="Clock was decorated after the container froze"):
        container.decorate(Clock, Loud)


def test_nothing_can_be_resolved_before_the_freeze():
    container = Container("shop")
    container.singleton(Clock)
    for ask in (container.get, container.resolve, container.sees, container.explain):
        with pytest.raises(ContainerError, match='the container of "shop" is not frozen yet'):
            ask(Clock)


def test_freezing_twice_changes_nothing(make):
    container = make(lambda c: c.singleton(Clock))
    clock = container.get(Clock)
    container.freeze()
    assert container.is_frozen
    assert container.get(Clock) is clock


def test_a_container_that_did_not_freeze_can_be_completed_and_frozen_again():
    container = Container()
    container.singleton(Desk)
    container.decorate(Desk, lambda inner: inner)
    with pytest.raises(ContainerError, match="nothing provides Greeter"):
        container.freeze()
    assert not container.is_frozen
    container.singleton(Greeter, English)
    container.freeze()
    assert container.get(Desk).greeter.greet() == "hello"
