"""A scope: what lives in it, who shares it, and how it ends."""

import asyncio

import anyio
import pytest

from lexigram.di.errors import ResourceError, ScopedResolutionError


class Session: ...


class Cart:
    def __init__(self, session: Session) -> None:
        self.session = session


class Order:
    def __init__(self, cart: Cart, session: Session) -> None:
        self.cart, self.session = cart, session


class Shared: ...


class Page:
    def __init__(self, shared: Shared, order: Order) -> None:
        self.shared, self.order = shared, order


def shop(c):
    c.singleton(Shared)
    c.scoped(Session)
    c.scoped(Cart)
    c.transient(Order)
    c.transient(Page)


async def test_a_scoped_service_may_need_another_scoped_one(make):
    """Defect 3: in the old line this failed inside an open scope."""
    container = make(shop)
    async with container.scope() as scope:
        cart = await scope.resolve(Cart)
        assert cart.session is await scope.resolve(Session)
        assert cart is scope.get(Cart)


async def test_a_transient_may_need_a_scoped_one_inside_a_scope(make):
    """Defect 3: in the old line this failed inside an open scope."""
    container = make(shop)
    async with container.scope() as scope:
        one, two = await scope.resolve(Page), scope.get(Page)
        assert one is not two
        assert one.order.cart is two.order.cart
        assert one.order.session is one.order.cart.session is scope.get(Session)
        assert one.shared is container.get(Shared)


async def test_a_scoped_factory_is_handed_the_container(make):
    """Defect 3: in the old line scoped factories got no resolver."""

    def register(c):
        c.singleton(Shared)
        c.scoped(Cart, factory=lambda c: Cart(c.get(Shared)))

    container = make(register)
    async with container.scope() as scope:
        assert scope.get(Cart).session is container.get(Shared)


async def test_a_singleton_may_need_a_transient(make):
    """Defect 3: in the old line this was refused at boot."""

    class Keeps:
        def __init__(self, shared: Shared) -> None:
            self.shared = shared

    container = make(lambda c: (c.transient(Shared), c.singleton(Keeps)))
    assert container.get(Keeps).shared is container.get(Keeps).shared is not container.get(Shared)


async def test_scopes_do_not_share(make):
    container = make(shop)
    async with container.scope() as one, container.scope() as two:
        assert one.get(Session) is not two.get(Session)
        assert one != two
        assert len({one, two}) == 2


def test_a_scope_may_be_opened_without_await(make):
    ended = []

    def session():
        yield Session()
        ended.append("session")

    container = make(lambda c: (c.scoped(Session, factory=session), c.scoped(Cart)))
    with container.scope() as scope:
        assert scope.get(Cart).session is scope.get(Session)
        assert ended == []
    assert ended == ["session"]


async def test_an_async_resource_is_refused_in_a_scope_that_is_left_without_await(make, new_tasks):
    entered = []

    async def session():
        entered.append("session")
        yield Session()

    container = make(lambda c: c.scoped(Session, factory=session))
    with container.scope() as scope:
        with pytest.raises(ResourceError, match="Session is torn down with await"):
            await scope.resolve(Session)
    assert entered == []
    assert new_tasks() == set()


@pytest.mark.parametrize("is_async", [True, False])
async def test_teardown_runs_in_reverse_and_sees_the_exception(make, is_async):
    log = []

    def resource(name, *needs):
        def steps():
            try:
                yield name
            except ValueError as error:
                log.append((name, str(error)))
                raise

        async def steps_async():
            try:
                yield name
            except ValueError as error:
                log.append((name, str(error)))
                raise

        return steps_async if is_async else steps

    def register(c):
        for name in ("first", "second", "third"):
            c.scoped(name, factory=resource(name))

    container = make(register)
    with pytest.raises(ValueError, match="oops"):
        async with container.scope() as scope:
            for name in ("first", "second", "third"):
                await scope.resolve(name)
            raise ValueError("oops")
    assert log == [("third", "oops"), ("second", "oops"), ("first", "oops")]


async def test_a_resource_cannot_swallow_the_exception_of_the_block(make):
    async def swallows():
        try:
            yield "value"
        except ValueError:
            pass

    container = make(lambda c: c.scoped("value", factory=swallows))
    with pytest.raises(ValueError, match="oops"):
        async with container.scope() as scope:
            await scope.resolve("value")
            raise ValueError("oops")


async def test_a_transient_resource_is_torn_down_with_its_scope(make):
    ended = []

    def numbered():
        number = len(ended) + 1
        yield number
        ended.append(number)

    container = make(lambda c: c.transient("number", factory=numbered))
    async with container.scope() as scope:
        scope.get("number")
        scope.get("number")
        assert ended == []
    assert len(ended) == 2
    with pytest.raises(ScopedResolutionError, match='"number" needs a scope'):
        container.get("number")


async def test_several_failures_at_the_end_come_together_and_none_is_lost(make):
    def fails(name):
        async def steps():
            yield name
            raise RuntimeError(name)

        return steps

    def register(c):
        c.scoped("one", factory=fails("one"))
        c.scoped("two", factory=fails("two"))
        c.scoped("three", factory=fails("three"))

    container = make(register)
    with pytest.raises(ExceptionGroup) as caught:
        async with container.scope() as scope:
            for name in ("one", "two", "three"):
                await scope.resolve(name)
    assert [str(error) for error in caught.value.exceptions] == ["three", "two", "one"]


async def test_one_failure_at_the_end_is_raised_as_it_is(make):
    def steps():
        yield "value"
        raise RuntimeError("teardown")

    container = make(lambda c: c.scoped("value", factory=steps))
    with pytest.raises(RuntimeError, match="teardown"):
        with container.scope() as scope:
            scope.get("value")


async def test_a_failure_at_the_end_keeps_the_exception_of_the_block_as_its_context(make):
    async def steps():
        try:
            yield "value"
        finally:
            raise RuntimeError("teardown")

    container = make(lambda c: c.scoped("value", factory=steps))
    with pytest.raises(RuntimeError, match="teardown") as caught:
        async with container.scope() as scope:
            await scope.resolve("value")
            raise ValueError("body")
    assert isinstance(caught.value.__context__, ValueError)


async def test_cancellation_passes_with_other_failures_as_its_cause(make):
    async def fails():
        yield "fails"
        raise RuntimeError("teardown")

    async def hangs():
        yield "hangs"
        await anyio.sleep_forever()

    container = make(lambda c: (c.scoped("fails", factory=fails), c.scoped("hangs", factory=hangs)))
    caught = []

    async def work():
        try:
            async with container.scope() as scope:
                await scope.resolve("fails")
                await scope.resolve("hangs")
        except asyncio.CancelledError as error:
            caught.append(error)
            raise

    task = asyncio.create_task(work())
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    [error] = caught
    assert [str(item) for item in error.__cause__.exceptions] == ["teardown"]


async def test_a_scope_tears_down_even_when_its_task_is_cancelled(make):
    ended = []

    async def session():
        try:
            yield Session()
        finally:
            ended.append("session")

    container = make(lambda c: c.scoped(Session, factory=session))
    with anyio.CancelScope() as cancel:
        async with container.scope() as scope:
            await scope.resolve(Session)
            cancel.cancel()
            await anyio.sleep_forever()
    assert ended == ["session"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_generator_that_never_yields_is_a_resource_error(make, kind):
    def nothing():
        return
        yield

    async def nothing_async():
        return
        yield

    factory = nothing if kind == "sync" else nothing_async
    container = make(lambda c: (c.scoped("s", factory=factory), c.singleton("x", factory=factory)))
    async with container.scope() as scope:
        with pytest.raises(ResourceError, match="nothing.* ended without a yield"):
            await scope.resolve("s")
    with pytest.raises(ResourceError, match="nothing.* ended without a yield"):
        await container.resolve("x")


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_generator_that_yields_twice_is_a_resource_error(make, kind):
    def again():
        yield "value"
        yield "again"

    async def again_async():
        yield "value"
        yield "again"

    factory = again if kind == "sync" else again_async
    container = make(lambda c: (c.scoped("s", factory=factory), c.singleton("x", factory=factory)))
    with pytest.raises(ResourceError, match="again.* yielded twice"):
        async with container.scope() as scope:
            await scope.resolve("s")
    with pytest.raises(ResourceError, match="again.* yielded twice"):
        async with container:
            pass


async def test_a_build_that_fails_is_not_cached(make):
    attempts = []

    def flaky() -> Session:
        attempts.append("try")
        if len(attempts) % 2:
            raise OSError("not yet")
        return Session()

    async def flaky_async() -> Cart:
        attempts.append("try")
        if len(attempts) % 2:
            raise OSError("not yet")
        return Cart(Session())

    container = make(
        lambda c: (c.scoped(Session, factory=flaky), c.scoped(Cart, factory=flaky_async))
    )
    async with container.scope() as scope:
        for service in (Session, Cart):
            with pytest.raises(OSError, match="not yet"):
                await scope.resolve(service)
            assert await scope.resolve(service) is await scope.resolve(service)
    assert len(attempts) == 4


async def test_what_was_built_before_a_failure_is_still_torn_down(make):
    ended = []

    async def session():
        yield Session()
        ended.append("session")

    def cart(session: Session) -> Cart:
        raise OSError("no cart")

    container = make(lambda c: (c.scoped(Session, factory=session), c.scoped(Cart, factory=cart)))
    async with container.scope() as scope:
        with pytest.raises(OSError, match="no cart"):
            await scope.resolve(Cart)
        assert ended == []
    assert ended == ["session"]


# In which task


async def test_in_the_task_of_the_scope_an_async_resource_is_entered_and_left_inline(
    make, new_tasks
):
    tasks = []

    async def session():
        tasks.append(asyncio.current_task())
        yield Session()
        tasks.append(asyncio.current_task())

    container = make(lambda c: c.scoped(Session, factory=session))
    async with container.scope() as scope:
        await scope.resolve(Session)
        assert new_tasks() == set()
    assert tasks == [asyncio.current_task()] * 2


async def test_from_another_task_an_async_resource_has_an_owner_task(make):
    tasks = []

    async def session():
        tasks.append(asyncio.current_task())
        yield Session()
        tasks.append(asyncio.current_task())

    container = make(lambda c: c.scoped(Session, factory=session))
    async with container.scope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(scope.resolve, Session)
        owner = tasks[0]
        assert owner is not asyncio.current_task()
        assert not owner.done()
    assert tasks == [owner, owner]
    assert owner.done()


async def test_a_task_group_inside_a_scoped_resource_works_from_any_task(make, new_tasks):
    async def workers():
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            yield group
            group.cancel_scope.cancel()

    container = make(lambda c: c.scoped("workers", factory=workers))
    async with container.scope() as scope:
        await scope.resolve("workers")
    async with container.scope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(scope.resolve, "workers")
    assert new_tasks() == set()


async def test_a_factory_used_in_another_task_gives_its_resource_an_owner_task(make, new_tasks):
    from lexigram.di import AsyncFactory

    tasks = []

    async def session():
        tasks.append(asyncio.current_task())
        yield Session()
        tasks.append(asyncio.current_task())

    container = make(lambda c: c.transient(Session, factory=session))
    async with container.scope() as scope:
        sessions = await scope.resolve(AsyncFactory[Session])
        async with anyio.create_task_group() as group:
            group.start_soon(sessions)
        await sessions()
    assert tasks[0] is not tasks[1] is asyncio.current_task()
    assert tasks[2:] == [tasks[1], tasks[0]]
    assert new_tasks() == set()


async def test_a_scope_that_was_not_entered_builds_nothing(make):
    def numbered():
        yield 1

    container = make(lambda c: (shop(c), c.transient("number", factory=numbered)))
    scope = container.scope()
    for service in (Session, Order, "number"):
        with pytest.raises(ScopedResolutionError, match="the scope was not entered"):
            scope.get(service)
        with pytest.raises(ScopedResolutionError, match="the scope was not entered"):
            await scope.resolve(service)
    assert scope.get(Shared) is container.get(Shared)


def test_scopes_of_loops_in_different_threads_know_their_own_task(make):
    import threading

    inside, tasks = [], []

    async def session():
        inside.append("one more")
        while len(inside) < 2:  # both loops are inside a task from here on
            pass
        before = asyncio.current_task()
        yield Session()
        tasks.append((before, asyncio.current_task()))

    container = make(lambda c: c.scoped(Session, factory=session))

    async def work():
        async with container.scope() as scope:
            await scope.resolve(Session)

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [(one, two), (three, four)] = tasks
    assert one is two is not three is four
