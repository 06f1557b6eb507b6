"""Overrides: reach what was built, wherever it is, and leave everything as it was."""

import asyncio
from typing import Annotated, Protocol

import anyio
import pytest

from lexigram.di import Arg, Container, Factory, Lazy, Named, Provider, singleton
from lexigram.di.errors import (
    AmbiguousDependencyError,
    ContainerValidationError,
    ModuleVisibilityError,
    OverrideError,
    UnresolvableDependencyError,
)


class Mailer(Protocol):
    def send(self) -> str: ...


class Smtp:
    def send(self) -> str:
        return "smtp"


class Fake:
    def __init__(self, text="fake") -> None:
        self.text = text

    def send(self) -> str:
        return self.text


class Orders:
    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer


class Shop:
    def __init__(self, orders: Orders) -> None:
        self.orders = orders


class Untouched: ...


class Basket:
    def __init__(self, orders: Orders) -> None:
        self.orders = orders


class Letter:
    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer


class Desk:
    def __init__(self, letters: Factory[Letter], orders: Lazy[Orders]) -> None:
        self.letters, self.orders = letters, orders


def shop(c):
    c.singleton(Mailer, Smtp)
    c.singleton(Orders)
    c.singleton(Shop)
    c.singleton(Untouched)
    c.scoped(Basket)
    c.transient(Letter)
    c.singleton(Desk)


def mailer_of(container):
    return container.get(Shop).orders.mailer.send()


# Reach


@pytest.mark.parametrize("how", ["async with", "with", "provider"])
async def test_an_override_reaches_singletons_already_built_and_everything_is_as_before(make, how):
    container = make(shop)
    before = [container.get(item) for item in (Mailer, Orders, Shop, Untouched)]
    fake = Fake()
    if how == "async with":
        async with container.override(Mailer, fake) as given:
            assert given is fake
            inside(container, fake)
    elif how == "with":
        with container.override(Mailer, fake) as given:
            assert given is fake
            inside(container, fake)
    else:
        with container.provider(Mailer).override(fake):
            inside(container, fake)
    after = [container.get(item) for item in (Mailer, Orders, Shop, Untouched)]
    assert all(one is two for one, two in zip(before, after, strict=True))


def inside(container, fake):
    assert container.get(Mailer) is fake
    assert container.get(Shop).orders.mailer is fake
    assert container.get(Shop) is container.get(Shop)


async def test_what_was_not_built_before_is_built_anew_afterwards(make):
    container = make(shop)
    async with container.override(Mailer, Fake()):
        during = container.get(Shop)
    assert container.get(Shop) is not during
    assert mailer_of(container) == "smtp"


async def test_what_does_not_stand_on_it_is_not_rebuilt(make):
    container = make(shop)
    untouched = container.get(Untouched)
    async with container.override(Mailer, Fake()):
        assert container.get(Untouched) is untouched


async def test_an_override_reaches_transients_factories_and_lazies(make):
    container = make(shop)
    desk = container.get(Desk)
    kept = desk.orders()
    async with container.override(Mailer, Fake()):
        assert container.get(Letter).mailer.send() == "fake"
        assert desk.letters().mailer.send() == "fake"
        assert desk.orders().mailer.send() == "fake"
        assert container.get(list[Mailer])[0].send() == "fake"
        assert container.get(Factory[Letter])().mailer.send() == "fake"
    assert container.get(Letter).mailer.send() == "smtp"
    assert desk.letters().mailer.send() == "smtp"
    assert desk.orders() is kept


async def test_an_override_reaches_scopes_opened_later_and_calls(make):
    container = make(shop)

    def work(basket: Basket) -> str:
        return basket.orders.mailer.send()

    async with container.scope() as scope:
        assert (await scope.resolve(Basket)).orders.mailer.send() == "smtp"
    async with container.override(Mailer, Fake()):
        async with container.scope() as scope:
            assert (await scope.resolve(Basket)).orders.mailer.send() == "fake"
        assert await container.call(work) == "fake"
        assert await container.resolve_all(Mailer) == [container.get(Mailer)]
    async with container.scope() as scope:
        assert (await scope.resolve(Basket)).orders.mailer.send() == "smtp"


async def test_what_an_open_scope_has_built_is_untouched(make):
    container = make(shop)
    async with container.scope() as scope:
        basket = await scope.resolve(Basket)
        async with container.override(Mailer, Fake()):
            assert await scope.resolve(Basket) is basket
            assert basket.orders.mailer.send() == "smtp"


async def test_scoped_and_transient_services_themselves_may_be_overridden(make):
    container = make(shop)
    fake = Fake()
    async with container.override(Basket, fake), container.override(Letter, fake):
        async with container.scope() as scope:
            assert await scope.resolve(Basket) is fake
            assert scope.get(Basket) is fake
        assert container.get(Letter) is fake
        assert container.get(Desk).letters() is fake
    async with container.scope() as scope:
        assert isinstance(await scope.resolve(Basket), Basket)


async def test_an_override_reaches_compiled_entries(make):
    container = make(shop)

    async def work(basket: Basket, who: Arg[str]) -> str:
        return f"{basket.orders.mailer.send()} to {who}"

    def plain(letter: Letter) -> str:
        return letter.mailer.send()

    entry, sync = container.entry(work), container.entry(plain)
    assert await entry("you") == "smtp to you"
    assert sync() == "smtp"
    async with container.override(Mailer, Fake()):
        assert await entry("you") == "fake to you"
        assert await entry("me") == "fake to me"
        assert sync() == "fake"
        async with container.override(Mailer, Fake("inner")):
            assert await entry("you") == "inner to you"
        assert await entry("you") == "fake to you"
    assert await entry("you") == "smtp to you"
    assert sync() == "smtp"


async def test_an_override_reaches_entries_first_called_under_it(make):
    container = make(shop)

    async def work(letter: Letter) -> str:
        return letter.mailer.send()

    entry = container.entry(work)
    async with container.override(Mailer, Fake()):
        assert await entry() == "fake"
        assert await entry() == "fake"
        made_inside = container.entry(work)
        assert await made_inside() == "fake"
    for item in (entry, made_inside):
        assert await item() == "smtp"
        assert await item() == "smtp"
    async with container.override(Mailer, Fake("second")):
        assert await entry() == "second"
        assert await made_inside() == "second"


async def test_a_call_under_way_keeps_what_it_has_and_the_next_one_sees_the_override(make):
    container = make(shop)
    gate = anyio.Event()

    async def work(letter: Letter, later: Lazy[Orders]) -> tuple:
        await gate.wait()
        return letter.mailer.send(), later().mailer.send()

    entry = container.entry(work)
    under_way = asyncio.create_task(entry())
    await anyio.wait_all_tasks_blocked()
    async with container.override(Mailer, Fake()):
        next_one = asyncio.create_task(entry())
        await anyio.wait_all_tasks_blocked()
        gate.set()
        assert (await under_way)[0] == "smtp"
        assert await next_one == ("fake", "fake")
    assert await entry() == ("smtp", "smtp")


async def test_an_override_reaches_async_singletons_and_entries_on_them(make):
    built = []

    async def orders(mailer: Mailer) -> Orders:
        built.append(mailer.send())
        return Orders(mailer)

    def register(c):
        c.singleton(Mailer, Smtp)
        c.singleton(Orders, factory=orders)
        c.scoped(Basket)

    async def work(basket: Basket) -> str:
        return basket.orders.mailer.send()

    container = make(register)
    before = await container.resolve(Orders)
    entry = container.entry(work)
    assert await entry() == "smtp"
    async with container.override(Mailer, Fake()):
        assert await entry() == "fake"
        assert (await container.resolve(Orders)).mailer.send() == "fake"
        async with container.scope() as scope:
            assert (await scope.resolve(Basket)).orders.mailer.send() == "fake"
    assert await container.resolve(Orders) is before
    assert await entry() == "smtp"
    assert built == ["smtp", "fake"]


async def test_an_override_replaces_async_and_generator_singletons_without_starting_them(make):
    started = []

    async def slow() -> Mailer:
        started.append("slow")
        return Smtp()

    async def steps():
        started.append("steps")
        yield Smtp()

    for factory in (slow, steps):
        container = make(
            lambda c, factory=factory: (c.singleton(Mailer, factory=factory), c.singleton(Orders))
        )
        async with container.override(Mailer, Fake()):
            assert container.get(Orders).mailer.send() == "fake"
            assert (await container.resolve(Mailer)).send() == "fake"
    assert started == []


async def test_an_override_reaches_what_a_factory_took_from_the_container_by_hand(make):
    async def by_hand(container) -> Shop:
        return Shop(await container.resolve(Orders))

    def register(c):
        c.singleton(Mailer, Smtp)
        c.singleton(Orders, factory=lambda c: Orders(c.get(Mailer)))
        c.singleton(Shop, factory=by_hand)

    container = make(register)
    before = await container.resolve(Shop)
    async with container.override(Mailer, Fake()):
        assert (await container.resolve(Shop)).orders.mailer.send() == "fake"
    assert await container.resolve(Shop) is before


async def test_an_override_reaches_decorated_services(make):
    class Loud:
        def __init__(self, inner: Mailer) -> None:
            self.inner = inner

        def send(self) -> str:
            return self.inner.send().upper()

    container = make(lambda c: (shop(c), c.decorate(Mailer, Loud)))
    assert mailer_of(container) == "SMTP"
    async with container.override(Mailer, Fake()):
        assert mailer_of(container) == "fake"
    assert mailer_of(container) == "SMTP"


async def test_a_promised_value_may_be_overridden_before_and_after_it_is_bound():
    container = Container()
    container.promise(Mailer)
    container.singleton(Orders)
    container.freeze()
    view = container.boot_view(container.modules.root, Provider(name="mail"))
    async with container.override(Mailer, Fake()):
        assert (await container.resolve(Orders)).mailer.send() == "fake"
        view.bind(Mailer, Smtp())
        assert container.get(Orders).mailer.send() == "fake"
    assert container.get(Orders).mailer.send() == "smtp"


async def test_names_tokens_and_values_may_be_overridden(make):
    def register(c):
        c.singleton(Mailer, Smtp)
        c.singleton(Mailer, Smtp, name="backup")
        c.bind("limit", 3)

    container = make(register)
    backup = Annotated[Mailer, Named("backup")]
    async with container.override(backup, Fake()), container.override("limit", 4):
        assert container.get(Mailer).send() == "smtp"
        assert container.get(backup).send() == "fake"
        assert container.get("limit") == 4
    assert container.get(backup).send() == "smtp"
    assert container.get("limit") == 3


async def test_a_marked_class_may_be_overridden(make):
    @singleton
    class Marked: ...

    container = make(lambda c: None)
    fake = Fake()
    async with container.override(Marked, fake):
        assert container.get(Marked) is fake
    assert isinstance(container.get(Marked), Marked)


async def test_the_model_takes_other_providers_as_overrides(make):
    from dependency_injector import providers

    container = make(shop)
    made = []

    def make_fake():
        made.append("fake")
        return Fake()

    with container.provider(Mailer).override(providers.Factory(make_fake)):
        assert container.get(Mailer) is container.get(Mailer)
        assert made == ["fake"]
    with container.provider(Letter).override(providers.Factory(Fake)):
        assert container.get(Letter) is not container.get(Letter)
    assert isinstance(container.get(Letter), Letter)


async def test_resetting_the_override_in_the_model_ends_it(make):
    container = make(shop)
    before = container.get(Shop)
    container.provider(Mailer).override(Fake("one"))
    container.provider(Mailer).override(Fake("two"))
    assert mailer_of(container) == "two"
    container.provider(Mailer).reset_last_overriding()
    assert mailer_of(container) == "one"
    container.provider(Mailer).reset_override()
    assert container.get(Shop) is before


# Nesting


async def test_overrides_nest(make):
    container = make(shop)
    before = container.get(Shop)
    async with container.override(Mailer, Fake("outer")):
        outer = container.get(Shop)
        async with container.override(Mailer, Fake("inner")):
            assert mailer_of(container) == "inner"
        assert mailer_of(container) == "outer"
        async with container.override(Orders, Orders(Fake("orders"))):
            assert mailer_of(container) == "orders"
            assert container.get(Mailer).send() == "outer"
        assert outer is not before
    assert container.get(Shop) is before


async def test_an_inner_override_leaves_alone_what_it_does_not_reach(make):
    container = make(shop)
    async with container.override(Mailer, Fake()):
        orders = container.get(Orders)
        async with container.override(Untouched, Fake()):
            assert container.get(Orders) is orders


async def test_overrides_may_end_in_any_order(make):
    container = make(shop)
    before = container.get(Shop)
    one = container.override(Mailer, Fake("one"))
    two = container.override(Mailer, Fake("two"))
    three = container.override(Orders, Orders(Fake("three")))
    one.__enter__()
    two.__enter__()
    three.__enter__()
    assert container.get(Mailer).send() == "two"
    one.__exit__(None, None, None)
    assert container.get(Mailer).send() == "two"
    three.__exit__(None, None, None)
    assert mailer_of(container) == "two"
    two.__exit__(None, None, None)
    assert container.get(Shop) is before


async def test_one_override_may_be_used_again(make):
    container = make(shop)
    override = container.override(Mailer, Fake())
    for _ in range(2):
        async with override:
            assert mailer_of(container) == "fake"
        assert mailer_of(container) == "smtp"


async def test_an_override_ends_when_its_block_raises(make):
    container = make(shop)
    with pytest.raises(ValueError, match="oops"):
        async with container.override(Mailer, Fake()):
            raise ValueError("oops")
    assert mailer_of(container) == "smtp"


async def test_a_build_under_way_when_an_override_begins_is_kept_for_afterwards(make):
    gate = anyio.Event()
    built = []

    async def orders(mailer: Mailer) -> Orders:
        built.append(mailer.send())
        if mailer.send() == "smtp":
            await gate.wait()
        return Orders(mailer)

    container = make(lambda c: (c.singleton(Mailer, Smtp), c.singleton(Orders, factory=orders)))
    first = asyncio.create_task(container.resolve(Orders))
    await anyio.wait_all_tasks_blocked()
    async with container.override(Mailer, Fake()):
        gate.set()
        assert (await first).mailer.send() == "fake"
        assert (await container.resolve(Orders)).mailer.send() == "fake"
    assert (await container.resolve(Orders)).mailer.send() == "smtp"
    assert built == ["smtp", "fake"]


async def test_a_build_under_way_when_an_override_ends_does_not_stay(make, new_tasks):
    gate = anyio.Event()
    log = []

    async def orders(mailer: Mailer):
        log.append(f"enter on {mailer.send()}")
        if mailer.send() == "fake":
            await gate.wait()
        yield Orders(mailer)
        log.append(f"leave on {mailer.send()}")

    container = make(lambda c: (c.singleton(Mailer, Smtp), c.singleton(Orders, factory=orders)))
    async with container.override(Mailer, Fake()):
        first = asyncio.create_task(container.resolve(Orders))
        await anyio.wait_all_tasks_blocked()
    gate.set()
    assert (await first).mailer.send() == "smtp"
    assert log == ["enter on fake", "leave on fake", "enter on smtp"]
    await container.aclose()
    assert log[-1] == "leave on smtp"
    assert new_tasks() == set()


# Resources


async def test_a_running_resource_built_on_the_service_refuses_the_override(make):
    async def consumer(orders: Orders):
        yield Shop(orders)

    container = make(
        lambda c: (
            c.singleton(Mailer, Smtp),
            c.singleton(Orders),
            c.singleton(Shop, factory=consumer),
        )
    )
    async with container:
        with pytest.raises(OverrideError) as caught:
            async with container.override(Mailer, Fake()):
                pytest.fail("it must not be entered")
        assert str(caught.value) == (
            "[LEX_ERR_DI_105] Mailer cannot be overridden now: the running resource Shop was "
            "built on it\n"
            "→ Fix: override before boot: Application(..., overrides={Mailer: ...})"
        )
        assert container.get(Shop).orders.mailer.send() == "smtp"


async def test_a_running_resource_itself_may_be_overridden_and_keeps_running(make):
    log = []

    async def mailer():
        log.append("enter")
        yield Smtp()
        log.append("leave")

    container = make(lambda c: (c.singleton(Mailer, factory=mailer), c.singleton(Orders)))
    async with container:
        before = container.get(Mailer)
        async with container.override(Mailer, Fake()):
            assert container.get(Orders).mailer.send() == "fake"
        assert log == ["enter"]
        assert container.get(Mailer) is before
    assert log == ["enter", "leave"]


@pytest.mark.parametrize("how", ["async with", "with"])
async def test_a_resource_started_under_an_override_ends_with_it(make, how, new_tasks):
    log = []

    async def shop_steps(orders: Orders):
        log.append(f"enter on {orders.mailer.send()}")
        yield Shop(orders)
        log.append(f"leave on {orders.mailer.send()}")

    def orders_steps(mailer: Mailer):
        yield Orders(mailer)
        log.append(f"orders left on {mailer.send()}")

    def register(c):
        c.singleton(Mailer, Smtp)
        c.singleton(Orders, factory=orders_steps)
        c.singleton(Shop, factory=shop_steps)

    container = make(register)
    if how == "async with":
        async with container.override(Mailer, Fake()):
            assert (await container.resolve(Shop)).orders.mailer.send() == "fake"
        assert log == ["enter on fake", "leave on fake", "orders left on fake"]
    else:
        with container.override(Mailer, Fake()):
            container.get(Orders)
        assert log == ["orders left on fake"]
        with container.override(Mailer, Fake()):
            await container.resolve(Shop)
        assert "leave on fake" not in log
    await container.start()
    assert container.get(Shop).orders.mailer.send() == "smtp"
    await container.aclose()
    assert sorted(log).count("leave on fake") == 1
    assert log.count("leave on smtp") == 1
    assert new_tasks() == set()


# Boot


@pytest.mark.parametrize(
    "how", ["get", "resolve", "resolve_optional", "resolve_all", "call", "form"]
)
async def test_what_a_boot_used_cannot_be_overridden_any_more(make, how):
    container = make(shop)
    view = container.boot_view(container.modules.root, Provider(name="mail"))

    def work(orders: Orders) -> None: ...

    if how == "get":
        view.get(Orders)
    elif how == "call":
        await view.call(work)
    elif how == "form":
        view.get(list[Orders])
    else:
        await getattr(view, how)(Orders)
    for service, value in ((Mailer, Fake()), (Orders, Orders(Fake()))):
        with pytest.raises(OverrideError, match="provider mail used Orders in its boot"):
            container.override(service, value).__enter__()
    with container.override(Untouched, Fake()):
        pass


async def test_what_is_resolved_after_boot_may_be_overridden(make):
    container = make(shop)
    view = container.boot_view(container.modules.root, Provider(name="mail"))
    view.end_boot()
    view.get(Orders)
    with container.override(Mailer, Fake()):
        assert mailer_of(container) == "fake"


# Which one


async def test_a_private_service_may_be_overridden_from_the_root_when_it_is_the_only_one(
    a_module, compose
):
    mail = a_module("Mail", shop, exports=[Shop])
    container = compose(mail)
    before = container.get(Shop)
    async with container.override(Mailer, Fake()):
        assert mailer_of(container) == "fake"
        with pytest.raises(ModuleVisibilityError):
            container.get(Mailer)
    assert container.get(Shop) is before


async def test_of_several_private_ones_the_module_must_be_named(a_module, compose):
    one = a_module("One", lambda c: (c.singleton(Mailer, Smtp), c.singleton(Orders)))
    two = a_module("Two", lambda c: c.singleton(Mailer, Smtp))
    container = compose(one, two)
    with pytest.raises(OverrideError) as caught:
        container.override(Mailer, Fake())
    assert str(caught.value) == (
        "[LEX_ERR_DI_105] Mailer is bound 2 times, in One and Two\n"
        "→ Fix: say which one: container.of(One).override(...)"
    )
    async with container.of(one).override(Mailer, Fake()):
        assert container.of(one).get(Orders).mailer.send() == "fake"
        assert container.of(two).get(Mailer).send() == "smtp"


def test_what_nobody_binds_cannot_be_overridden(make):
    class Nothing: ...

    with pytest.raises(UnresolvableDependencyError, match="nothing provides Nothing"):
        make(shop).override(Nothing, Nothing())
    with pytest.raises(UnresolvableDependencyError, match=r"nothing provides list\[Mailer\]"):
        make(shop).override(list[Mailer], [])


def test_what_is_visible_twice_cannot_be_overridden_without_saying_which(make):
    container = make(lambda c: (c.singleton(Mailer, Smtp), c.singleton(Mailer, Smtp)))
    with pytest.raises(OverrideError, match="Mailer is bound 2 times"):
        container.override(Mailer, Fake())
    with pytest.raises(AmbiguousDependencyError):
        container.get(Mailer)


# Before the freeze


def test_overrides_of_the_application_are_in_place_before_anything_is_built(make):
    started = []

    async def real():
        started.append("real")
        yield Smtp()

    class Loud:
        def __init__(self, inner: Mailer) -> None: ...

    def register(c):
        c.singleton(Mailer, factory=real)
        c.decorate(Mailer, Loud)
        c.singleton(Orders)

    fake = Fake()
    container = make(register, overrides={Mailer: fake})
    asyncio.run(container.start())
    assert container.get(Orders).mailer is fake
    assert started == []


def test_overrides_of_the_application_make_missing_and_async_parts_unnecessary(make):
    class NeedsMuch:
        def __init__(self, missing: OSError) -> None: ...

    container = make(
        lambda c: (c.scoped(Mailer, NeedsMuch), c.singleton(Orders)), overrides={Mailer: Fake()}
    )
    assert container.get(Orders).mailer.send() == "fake"


def test_overrides_of_the_application_may_bind_what_is_asked_for_and_missing(make):
    container = make(lambda c: c.singleton(Orders), overrides={Mailer: Fake()})
    assert container.get(Orders).mailer.send() == "fake"


def test_overrides_of_the_application_reach_private_services_of_every_module(a_module):
    from lexigram.di import ModuleGraph

    one = a_module("One", lambda c: None)
    graph = ModuleGraph([one])
    container = Container("shop", graph)
    container.registrar(graph.node(one)).singleton(Mailer, Smtp)
    container.registrar(graph.node(one)).singleton(Orders)
    container.freeze({Mailer: Fake()})
    assert container.of(one).get(Orders).mailer.send() == "fake"


def test_overrides_of_the_application_may_name_marked_and_generic_classes(make):
    from typing import Generic, TypeVar

    T = TypeVar("T")

    @singleton
    class Marked: ...

    class Box(Generic[T]): ...

    fake = Fake()
    container = make(lambda c: c.singleton(Box), overrides={Marked: fake, Box[int]: fake})
    assert container.get(Marked) is container.get(Box[int]) is fake
    assert container.get(Box[str]) is not fake


def test_a_promise_that_the_application_overrides_may_still_be_kept():
    container = Container()
    container.promise(Mailer)
    fake = Fake()
    provider = Provider(name="mail")
    container.freeze({Mailer: fake})
    container.boot_view(container.modules.root, provider).bind(Mailer, Smtp())
    assert container.get(Mailer) is fake
    assert container.broken_promises(provider) == []


def test_an_override_of_the_application_that_changes_nothing_is_refused(make):
    with pytest.raises(ContainerValidationError) as caught:
        make(lambda c: c.singleton(Smtp), overrides={Mailer: Fake()})
    assert caught.value.problems[0].render() == (
        "[LEX_ERR_DI_105] overrides has Mailer, which nothing provides or asks for\n"
        "    fix: check the type, or take it out of overrides"
    )


async def test_an_override_reaches_async_factories(make):
    async def slow(mailer: Mailer) -> Letter:
        return Letter(mailer)

    from lexigram.di import AsyncFactory

    container = make(lambda c: (c.singleton(Mailer, Smtp), c.transient(Letter, factory=slow)))
    letters = container.get(AsyncFactory[Letter])
    fake = Fake()
    async with container.override(Mailer, fake):
        assert (await letters()).mailer is fake
    async with container.override(Letter, fake):
        assert await letters() is fake
    assert (await letters()).mailer.send() == "smtp"


async def test_an_override_that_begins_while_dependencies_start_is_used(make):
    gate = anyio.Event()
    built = []

    async def mailer() -> Mailer:
        await gate.wait()
        return Smtp()

    async def orders(mailer: Mailer) -> Orders:
        built.append("orders")
        return Orders(mailer)

    container = make(
        lambda c: (c.singleton(Mailer, factory=mailer), c.singleton(Orders, factory=orders))
    )
    asked = asyncio.create_task(container.resolve(Orders))
    await anyio.wait_all_tasks_blocked()
    fake = Orders(Fake())
    async with container.override(Orders, fake):
        gate.set()
        assert await asked is fake
    assert built == []
    assert (await container.resolve(Orders)).mailer.send() == "smtp"


async def test_what_several_decorators_wrap_is_not_started_when_the_application_overrides_it(make):
    started = []

    async def real():
        started.append("real")
        yield Smtp()

    def wrap(inner: Mailer) -> Mailer:
        return inner

    def register(c):
        c.singleton(Mailer, factory=real)
        c.decorate(Mailer, wrap)
        c.decorate(Mailer, wrap)

    async with make(register, overrides={Mailer: Fake()}) as container:
        assert container.get(Mailer).send() == "fake"
        assert len(container.graph().to_dict()["nodes"]) == 1
    assert started == []
