"""Compiled entries: a scope opened, arguments built, the function called, everything torn down."""

import asyncio
import traceback
from functools import partial

import anyio
import pytest

from lexigram.di import Arg, AsyncFactory, Container, Factory, Lazy, Scope
from lexigram.di.errors import (
    AsyncDependencyError,
    ContainerValidationError,
    ResourceError,
    SignatureError,
    UnresolvableDependencyError,
)


class Shared: ...


class Session: ...


class Cart:
    def __init__(self, session: Session, shared: Shared) -> None:
        self.session, self.shared = session, shared


class Page:
    def __init__(self, cart: Cart, session: Session) -> None:
        self.cart, self.session = cart, session


def shop(c):
    c.singleton(Shared)
    c.scoped(Session)
    c.scoped(Cart)
    c.transient(Page)


class Part:
    """One of many, to make a graph too large for local variables."""


def many_parts(c):
    for number in range(30):
        c.scoped(Part, name=str(number))


class Whole:
    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts


# An entry is written in one of two ways; a promise of entries must hold for both.


def small(c):
    """Small enough for local variables."""


def large(c):
    """Forces the form with a real scope."""
    many_parts(c)
    c.scoped(Whole)


FORMS = pytest.mark.parametrize("form", [small, large], ids=["flat", "scoped"])


@pytest.fixture
def entry_of(make):
    """``entry_of(form, register, func)``: the entry of ``func`` in one of the two forms."""

    def build(form, register, func, **options):
        container = make(lambda c: (register(c), form(c)))
        if form is large:
            func = with_whole(func)
        return container, container.entry(func, **options)

    return build


def with_whole(func):
    """The same function, asking for a large graph too."""
    import inspect

    if inspect.iscoroutinefunction(func):

        async def wider(*args, whole: Whole, **kwargs):
            assert len(whole.parts) == 30
            return await func(*args, **kwargs)

    else:

        def wider(*args, whole: Whole, **kwargs):
            assert len(whole.parts) == 30
            return func(*args, **kwargs)

    signature = inspect.signature(func)
    extra = inspect.Parameter("whole", inspect.Parameter.KEYWORD_ONLY, annotation=Whole)
    wider.__signature__ = signature.replace(parameters=[*signature.parameters.values(), extra])
    wider.__annotations__ = {**func.__annotations__, "whole": Whole}
    wider.__wrapped__ = wider_base(func, wider.__annotations__, wider.__signature__)
    wider.__name__ = func.__name__
    return wider


def wider_base(func, annotations, signature):
    def base(): ...

    base.__annotations__ = annotations
    base.__signature__ = signature
    return base


@FORMS
async def test_an_entry_builds_what_its_function_asks_for(entry_of, form):
    async def work(page: Page, session: Session, shared: Shared) -> tuple:
        return page, session, shared

    container, entry = entry_of(form, shop, work)
    page, session, shared = await entry()
    assert page.session is session is page.cart.session
    assert shared is page.cart.shared is container.get(Shared)
    other, _, _ = await entry()
    assert other.session is not session


@FORMS
def test_a_plain_function_gives_a_plain_entry(entry_of, form):
    def work(page: Page, session: Session) -> bool:
        return page.session is session

    _, entry = entry_of(form, shop, work)
    assert entry() is True


@FORMS
async def test_given_and_marked_parameters_are_passed_by_position_in_that_order(entry_of, form):
    async def work(page: Page, message: str, retry: Arg[int], shared: Shared, topic: str) -> tuple:
        assert isinstance(page, Page)
        assert isinstance(shared, Shared)
        return message, retry, topic

    _, entry = entry_of(form, shop, work, given=["topic", "message"])
    assert await entry("t", "m", 3) == ("m", 3, "t")


@FORMS
@pytest.mark.parametrize("name", ["scope", "result", "error", "next", "epoch", "failures", "entry"])
async def test_given_parameters_may_have_any_name(entry_of, form, name):
    def session():
        yield Session()

    namespace = {"Session": Session}
    exec(f"async def work({name}: str, session: Session): return {name}", namespace)
    _, entry = entry_of(
        form, lambda c: c.scoped(Session, factory=session), namespace["work"], given=[name]
    )
    assert await entry("mine") == "mine"


@FORMS
async def test_types_may_be_named_like_what_generated_code_uses(entry_of, form):
    class Next: ...

    class Result: ...

    def generator():
        yield Next()

    def register(c):
        c.scoped(Next, factory=generator)
        c.scoped(Result)
        c.bind("9 lives", 9)
        c.scoped("7 days", factory=lambda: 7)

    async def work(next: Next, result: Result) -> tuple:
        return next, result

    _, entry = entry_of(form, register, work)
    next_, result = await entry()
    assert (type(next_), type(result)) == (Next, Result)


async def test_tokens_that_are_no_names_can_be_asked_for(make):
    from typing import Annotated

    from lexigram.di import Inject

    async def work(
        days: Annotated[int, Inject("7 days")], lives: Annotated[int, Inject("9 lives")]
    ) -> tuple:
        return days, lives

    container = make(lambda c: (c.bind("9 lives", 9), c.scoped("7 days", factory=lambda: 7)))
    assert await container.entry(work)() == (7, 9)


@FORMS
async def test_positional_only_keyword_only_and_default_parameters_work(entry_of, form):
    async def work(page: Page, /, size: int = 3, *, session: Session, who: str = "you") -> tuple:
        return page.session is session, size, who

    _, entry = entry_of(form, shop, work)
    assert await entry() == (True, 3, "you")


async def test_methods_objects_and_partials_may_be_entries(make):
    class Handler:
        async def handle(self, page: Page) -> Page:
            return page

        async def __call__(self, page: Page) -> Page:
            return page

    async def work(who: str, page: Page) -> tuple:
        return who, page

    container = make(shop)
    assert isinstance(await container.entry(Handler().handle)(), Page)
    assert isinstance(await container.entry(Handler())(), Page)
    who, page = await container.entry(partial(work, "me"))()
    assert who == "me"
    assert isinstance(page, Page)


def test_a_class_may_be_an_entry(make):
    assert isinstance(make(shop).entry(Page)(), Page)


# Teardown


def resource(name, log, *, fails=False, is_async=True):
    async def steps_async():
        log.append(f"enter {name}")
        try:
            yield name
        except BaseException as error:
            log.append(f"{name} saw {type(error).__name__}")
            raise
        finally:
            log.append(f"leave {name}")
            if fails:
                raise RuntimeError(f"{name} failed")

    def steps():
        log.append(f"enter {name}")
        try:
            yield name
        except BaseException as error:
            log.append(f"{name} saw {type(error).__name__}")
            raise
        finally:
            log.append(f"leave {name}")
            if fails:
                raise RuntimeError(f"{name} failed")

    return steps_async if is_async else steps


class One(str): ...


class Two(str): ...


class Three(str): ...


def resources(log, *, fails=(), is_async=True):
    def register(c):
        for kind in (One, Two, Three):
            name = kind.__name__
            steps = resource(name, log, fails=name in fails, is_async=is_async)
            c.scoped(kind, factory=steps)

    return register


@FORMS
async def test_resources_are_left_in_reverse_after_the_call(entry_of, form):
    log = []

    async def work(one: One, two: Two, three: Three) -> str:
        log.append("call")
        return "done"

    _, entry = entry_of(form, resources(log), work)
    assert await entry() == "done"
    assert log == [
        *("enter One", "enter Two", "enter Three"),
        "call",
        *("leave Three", "leave Two", "leave One"),
    ]


@FORMS
def test_sync_resources_are_left_in_reverse_after_a_plain_call(entry_of, form):
    log = []

    def work(one: One, two: Two) -> str:
        log.append("call")
        return "done"

    _, entry = entry_of(form, resources(log, is_async=False), work)
    assert entry() == "done"
    assert log == ["enter One", "enter Two", "call", "leave Two", "leave One"]


@FORMS
@pytest.mark.parametrize("is_async", [True, False])
async def test_every_resource_sees_the_exception_of_the_call(entry_of, form, is_async):
    log = []

    async def work(one: One, two: Two) -> None:
        raise ValueError("oops")

    _, entry = entry_of(form, resources(log, is_async=is_async), work)
    with pytest.raises(ValueError, match="oops"):
        await entry()
    assert log[2:] == ["Two saw ValueError", "leave Two", "One saw ValueError", "leave One"]


@FORMS
def test_every_sync_resource_sees_the_exception_of_a_plain_call(entry_of, form):
    log = []

    def work(one: One, two: Two) -> None:
        raise ValueError("oops")

    _, entry = entry_of(form, resources(log, is_async=False), work)
    with pytest.raises(ValueError, match="oops"):
        entry()
    assert log[2:] == ["Two saw ValueError", "leave Two", "One saw ValueError", "leave One"]


@FORMS
async def test_a_resource_that_fails_to_start_leaves_those_before_it(entry_of, form):
    log = []

    async def breaks():
        raise OSError("no start")
        yield

    def register(c):
        c.scoped(One, factory=resource("One", log))
        c.scoped(Two, factory=breaks)

    async def work(one: One, two: Two) -> None: ...

    _, entry = entry_of(form, register, work)
    with pytest.raises(OSError, match="no start"):
        await entry()
    assert log == ["enter One", "One saw OSError", "leave One"]


@FORMS
async def test_one_failing_teardown_is_raised_and_the_others_still_run(entry_of, form):
    log = []

    async def work(one: One, two: Two) -> None: ...

    _, entry = entry_of(form, resources(log, fails=["Two"]), work)
    with pytest.raises(RuntimeError, match="Two failed"):
        await entry()
    assert log == ["enter One", "enter Two", "leave Two", "leave One"]


@FORMS
@pytest.mark.parametrize("is_async", [True, False])
async def test_several_failing_teardowns_come_together(entry_of, form, is_async):
    log = []

    async def work(one: One, two: Two, three: Three) -> None: ...

    _, entry = entry_of(form, resources(log, fails=["One", "Three"], is_async=is_async), work)
    with pytest.raises(ExceptionGroup) as caught:
        await entry()
    assert [str(item) for item in caught.value.exceptions] == ["Three failed", "One failed"]


@FORMS
async def test_failing_teardowns_keep_the_exception_of_the_call_as_context(entry_of, form):
    log = []

    async def work(one: One, two: Two) -> None:
        raise ValueError("oops")

    _, entry = entry_of(form, resources(log, fails=["One", "Two"]), work)
    with pytest.raises(ExceptionGroup) as caught:
        await entry()
    assert isinstance(caught.value.__context__, ValueError)


@FORMS
async def test_a_resource_cannot_swallow_the_exception_of_the_call(entry_of, form):
    async def swallows():
        try:
            yield One()
        except ValueError:
            pass

    async def work(one: One) -> None:
        raise ValueError("oops")

    _, entry = entry_of(form, lambda c: c.scoped(One, factory=swallows), work)
    with pytest.raises(ValueError, match="oops"):
        await entry()


@FORMS
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_resource_that_breaks_the_rules_is_told(entry_of, form, is_async):
    async def never_async():
        return
        yield

    def never():
        return
        yield

    async def twice_async():
        yield 1
        yield 2

    def twice():
        yield 1
        yield 2

    async def work(one: One) -> None: ...

    for factory, text in (
        (never_async if is_async else never, "never.* ended without a yield"),
        (twice_async if is_async else twice, "twice.* yielded twice"),
    ):
        _, entry = entry_of(form, lambda c, factory=factory: c.scoped(One, factory=factory), work)
        with pytest.raises(ResourceError, match=text):
            await entry()


@FORMS
async def test_resources_run_in_the_calling_task(entry_of, form):
    tasks = []

    async def steps():
        tasks.append(asyncio.current_task())
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            yield One()
            group.cancel_scope.cancel()
        tasks.append(asyncio.current_task())

    async def work(one: One) -> None:
        tasks.append(asyncio.current_task())

    _, entry = entry_of(form, lambda c: c.scoped(One, factory=steps), work)
    await entry()
    assert set(tasks) == {asyncio.current_task()}


@FORMS
async def test_a_cancelled_call_is_torn_down(entry_of, form):
    log = []

    async def work(one: One) -> None:
        await anyio.sleep_forever()

    _, entry = entry_of(form, resources(log), work)
    with anyio.CancelScope() as cancel:
        async with anyio.create_task_group() as group:
            group.start_soon(entry)
            await anyio.wait_all_tasks_blocked()
            cancel.cancel()
    assert log == ["enter One", "One saw CancelledError", "leave One"]


# What may be asked for


async def test_factories_and_the_scope_itself_may_be_asked_for(make):
    ended = []

    async def slow(session: Session):
        yield session
        ended.append("slow")

    async def work(
        scope: Scope, pages: Factory[Page], carts: Lazy[Cart], slow: AsyncFactory[One]
    ) -> None:
        assert pages() is not pages()
        assert pages().session is scope.get(Session) is carts().session
        assert await slow() is scope.get(Session)
        assert ended == []

    container = make(lambda c: (shop(c), c.transient(One, factory=slow)))
    await container.entry(work)()
    assert ended == ["slow"]


async def test_async_built_services_are_awaited(make):
    async def slow_shared() -> Shared:
        return Shared()

    async def slow_session(shared: Shared) -> Session:
        session = Session()
        session.shared = shared
        return session

    def register(c):
        shop(c)
        c.singleton(One, factory=slow_one)
        c.scoped(Two, factory=slow_two)

    async def slow_one(shared: Shared) -> One:
        return One("one")

    async def slow_two(one: One, session: Session) -> Two:
        return Two(f"two on {one}")

    async def work(two: Two, one: One) -> str:
        return two

    container = make(register)
    assert await container.entry(work)() == "two on one"


def test_a_plain_function_cannot_ask_for_what_needs_await(make):
    async def slow() -> Session:
        return Session()

    def work(session: Session) -> None: ...

    with pytest.raises(AsyncDependencyError) as caught:
        make(lambda c: c.scoped(Session, factory=slow)).entry(work)
    assert str(caught.value) == (
        "[LEX_ERR_DI_102] work is a plain function, but what it asks for needs await\n"
        "→ Fix: make it `async def work`"
    )


async def test_what_cannot_be_filled_is_told_when_the_entry_is_made(make):
    async def work(missing: OSError, also: LookupError) -> None: ...

    with pytest.raises(
        ContainerValidationError, match="work asks for what it cannot have"
    ) as caught:
        make(shop).entry(work)
    assert [problem.title for problem in caught.value.problems] == [
        "nothing provides OSError",
        "nothing provides LookupError",
    ]


async def test_a_marked_scoped_class_may_be_first_seen_by_an_entry(make):
    from lexigram.di import scoped

    @scoped
    class Marked:
        def __init__(self, session: Session) -> None:
            self.session = session

    async def work(marked: Marked, session: Session) -> bool:
        return marked.session is session

    assert await make(shop).entry(work)()


async def test_an_entry_sees_what_its_module_sees(a_module, compose):
    module = a_module("Shop", shop)

    async def work(page: Page) -> Page:
        return page

    container = compose(module)
    assert isinstance(await container.of(module).entry(work)(), Page)
    with pytest.raises(ContainerValidationError, match="Page is not visible to app"):
        container.entry(work)


# First call


async def test_making_an_entry_builds_nothing_and_its_first_call_does(make):
    built = []

    async def slow_shared() -> Shared:
        built.append("shared")
        return Shared()

    class Lazily:
        def __init__(self) -> None:
            built.append("lazily")

    async def work(shared: Shared, lazily: Lazily) -> tuple:
        return shared, lazily

    container = make(lambda c: (c.singleton(Shared, factory=slow_shared), c.singleton(Lazily)))
    entry = container.entry(work)
    assert built == []
    first = await entry()
    assert built == ["shared", "lazily"]
    assert await entry() == first
    assert await asyncio.gather(entry(), entry()) == [first, first]


async def test_first_calls_at_the_same_time_share_what_they_build(make):
    built = []
    gate = anyio.Event()

    async def slow_shared() -> Shared:
        built.append("shared")
        await gate.wait()
        return Shared()

    async def work(shared: Shared, name: Arg[str]) -> tuple:
        return shared, name

    container = make(lambda c: c.singleton(Shared, factory=slow_shared))
    entry = container.entry(work)
    tasks = [asyncio.create_task(entry(name)) for name in "abc"]
    await anyio.wait_all_tasks_blocked()
    gate.set()
    results = await asyncio.gather(*tasks)
    assert [name for _, name in results] == ["a", "b", "c"]
    assert len({shared for shared, _ in results}) == 1
    assert built == ["shared"]


async def test_a_first_call_that_fails_is_tried_again_by_the_next(make):
    attempts = []

    async def flaky() -> Shared:
        attempts.append("try")
        if len(attempts) == 1:
            raise OSError("not yet")
        return Shared()

    async def work(shared: Shared) -> Shared:
        return shared

    container = make(lambda c: c.singleton(Shared, factory=flaky))
    entry = container.entry(work)
    with pytest.raises(OSError, match="not yet"):
        await entry()
    assert isinstance(await entry(), Shared)
    assert await entry() is container.get(Shared)


async def test_an_entry_may_be_made_before_a_promise_is_kept(make):
    from lexigram.di import Provider
    from lexigram.di.errors import PromiseError

    container = Container()
    container.promise(Shared)
    container.freeze()

    async def work(shared: Shared) -> Shared:
        return shared

    entry = container.entry(work)
    with pytest.raises(PromiseError):
        await entry()
    shared = Shared()
    container.boot_view(container.modules.root, Provider(name="x")).bind(Shared, shared)
    assert await entry() is shared


async def test_the_source_of_an_entry_shows_in_tracebacks(make):
    async def work(page: Page) -> None:
        raise ValueError("oops")

    entry = make(shop).entry(work)
    for _ in range(2):  # before and after it has turned into the compiled one
        with pytest.raises(ValueError, match="oops") as caught:
            await entry()
    text = "".join(traceback.format_exception(caught.value))
    assert "<lexigram " in text
    assert "result = await work(Page(" in text


async def test_unknown_given_names_are_refused_by_name(make):
    async def work(page: Page) -> None: ...

    with pytest.raises(SignatureError, match="work has no parameter mesage"):
        make(shop).entry(work, given=["mesage"])


async def test_a_removed_service_is_told_by_entries_made_before(make):
    async def work(shared: Shared) -> None: ...

    container = make(shop)
    entry = container.entry(work)
    await entry()
    del container.providers[Shared]
    with pytest.raises(UnresolvableDependencyError):
        await entry()
