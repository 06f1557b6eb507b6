"""Generator singletons: started, owned by one task, told when they die, torn down in reverse."""

import asyncio

import anyio
import anyio.lowlevel
import pytest
from tests.failures import WAYS_TO_RAISE, cancel_its_own_task

from lexigram.concurrency import CallAbortedError
from lexigram.di import Container, Provider
from lexigram.di.errors import ResourceError
from lexigram.di.resources import Owned


class Pool: ...


class Queue: ...


class Worker:
    def __init__(self, pool: Pool, queue: Queue) -> None:
        self.pool, self.queue = pool, queue


def recorder(log, name, value=None):
    async def steps():
        log.append(f"enter {name}")
        yield value or name
        log.append(f"leave {name}")

    return steps


async def test_a_task_group_inside_an_async_generator_singleton_works(make, new_tasks):
    ran = anyio.Event()

    async def pool():
        async with anyio.create_task_group() as group:
            group.start_soon(background)
            yield group
            group.cancel_scope.cancel()

    async def background():
        ran.set()
        await anyio.sleep_forever()

    async with make(lambda c: c.singleton(Pool, factory=pool)) as container:
        await ran.wait()
        assert container.get(Pool).cancel_scope is not None
    assert new_tasks() == set()


async def test_teardown_runs_in_the_task_that_entered_and_sees_the_exception(make):
    seen = {}

    async def pool():
        seen["entered"] = asyncio.current_task()
        try:
            yield Pool()
        except ValueError as error:
            seen["error"] = error
            raise
        finally:
            seen["left"] = asyncio.current_task()

    error = ValueError("oops")
    with pytest.raises(ValueError, match="oops"):
        async with make(lambda c: c.singleton(Pool, factory=pool)):
            raise error
    assert seen["error"] is error
    assert seen["entered"] is seen["left"] is not asyncio.current_task()


async def test_an_error_wrapped_by_a_task_group_of_the_resource_is_not_a_second_failure(make):
    async def pool():
        async with anyio.create_task_group():
            yield Pool()

    with pytest.raises(ValueError, match="oops"):
        async with make(lambda c: c.singleton(Pool, factory=pool)):
            raise ValueError("oops")


async def test_closing_with_an_error_shows_it_to_every_resource(make):
    seen = []

    def steps_of(name):
        async def steps():
            try:
                yield name
            except OSError as error:
                seen.append((name, error))
                raise

        return steps

    container = make(
        lambda c: (c.singleton("a", factory=steps_of("a")), c.singleton("b", factory=steps_of("b")))
    )
    await container.start()
    error = OSError("disk")
    await container.aclose(error)
    assert dict(seen) == {"a": error, "b": error}


async def test_resources_are_left_in_reverse_of_what_stands_on_what(make):
    log = []

    async def worker(pool: Pool, queue: Queue):
        log.append("enter worker")
        yield Worker(pool, queue)
        log.append("leave worker")

    def queue(pool: Pool):
        log.append("enter queue")
        yield Queue()
        log.append("leave queue")

    def register(c):
        c.singleton(Worker, factory=worker)
        c.singleton(Queue, factory=queue)
        c.singleton(Pool, factory=recorder(log, "pool", Pool()))

    async with make(register) as container:
        assert isinstance(container.get(Worker).pool, Pool)
    assert log == [
        *("enter pool", "enter queue", "enter worker"),
        *("leave worker", "leave queue", "leave pool"),
    ]


async def test_resources_that_do_not_need_each_other_start_side_by_side(make):
    both = anyio.Event()
    started = []

    def steps_of(name):
        async def steps():
            started.append(name)
            if len(started) == 2:
                both.set()
            await both.wait()
            yield name

        return steps

    def register(c):
        c.singleton("a", factory=steps_of("a"))
        c.singleton("b", factory=steps_of("b"))

    async with make(register) as container:
        assert {container.get("a"), container.get("b")} == {"a", "b"}


async def test_start_starts_what_one_provider_registered_and_what_it_stands_on():
    log = []
    container = Container()
    node = container.modules.root
    first, second = Provider(name="first"), Provider(name="second")
    registrar = container.registrar(node, first)
    registrar.singleton(Pool, factory=recorder(log, "pool"))
    registrar = container.registrar(node, second)
    registrar.singleton(Queue, factory=recorder(log, "queue"))
    registrar.singleton("idle", factory=lambda: log.append("lazy"))
    container.freeze()
    await container.start(first)
    assert log == ["enter pool"]
    await container.start(second)
    assert log == ["enter pool", "enter queue"]
    await container.start()
    assert log == ["enter pool", "enter queue"]
    await container.aclose()
    assert log[2:] == ["leave queue", "leave pool"]


async def test_several_failing_teardowns_come_together_and_none_is_lost(make):
    def steps_of(name):
        async def steps():
            yield name
            raise RuntimeError(name)

        return steps

    def sync():
        yield "sync"
        raise RuntimeError("sync")

    def register(c):
        c.singleton("a", factory=steps_of("a"))
        c.singleton("sync", factory=sync)
        c.singleton("b", factory=steps_of("b"))

    with pytest.raises(ExceptionGroup) as caught:
        async with make(register):
            pass
    assert {str(error) for error in caught.value.exceptions} == {"a", "b", "sync"}


async def test_a_start_that_fails_leaves_what_had_started(make, new_tasks):
    log = []

    async def worker(pool: Pool):
        raise OSError("no worker")
        yield

    def register(c):
        c.singleton(Pool, factory=recorder(log, "pool"))
        c.singleton(Worker, factory=worker)

    with pytest.raises(OSError, match="no worker"):
        async with make(register):
            pytest.fail("it must not be entered")
    assert log == ["enter pool"]  # it saw the error at its yield
    assert new_tasks() == set()


async def test_a_failing_resource_cancels_those_starting_beside_it(make, new_tasks):
    log = []

    async def hangs():
        try:
            await anyio.sleep_forever()
            yield
        finally:
            log.append("cancelled")

    async def fails():
        await anyio.lowlevel.checkpoint()
        raise OSError("no")
        yield

    container = make(lambda c: (c.singleton("a", factory=hangs), c.singleton("b", factory=fails)))
    with pytest.raises(OSError, match="no"):
        await container.start()
    assert log == ["cancelled"]
    assert new_tasks() == set()


async def test_two_that_fail_at_once_are_both_told(make):
    gate = anyio.Event()

    def fails(name):
        async def steps():
            await gate.wait()
            raise OSError(name)
            yield

        return steps

    def register(c):
        c.singleton("a", factory=fails("a"))
        c.singleton("b", factory=fails("b"))

    container = make(register)
    with pytest.raises(ExceptionGroup) as caught:
        async with anyio.create_task_group() as group:
            group.start_soon(container.start)
            await anyio.wait_all_tasks_blocked()
            gate.set()
    [inner] = caught.value.exceptions
    assert sorted(str(error) for error in inner.exceptions) == ["a", "b"]


async def test_failures_below_and_above_are_told_once_each(make):
    gate = anyio.Event()

    def fails(name):
        async def make_it():
            await gate.wait()
            raise OSError(name)

        return make_it

    async def worker(pool: Pool, queue: Queue) -> Worker: ...

    def register(c):
        c.singleton(Worker, factory=worker)
        c.singleton(Pool, factory=fails("pool"))
        c.singleton(Queue, factory=fails("queue"))

    container = make(register)
    task = asyncio.create_task(container.start())
    await anyio.wait_all_tasks_blocked()
    gate.set()
    with pytest.raises(ExceptionGroup, match="several services failed to start") as caught:
        await task
    assert sorted(str(error) for error in caught.value.exceptions) == ["pool", "queue"]


async def test_a_failing_resource_under_two_others_is_built_once_and_told_once(make):
    calls = []

    async def pool() -> Pool:
        calls.append("pool")
        await anyio.lowlevel.checkpoint()
        raise OSError("no pool")

    async def one(pool: Pool) -> Queue: ...

    async def two(pool: Pool, queue: Queue) -> Worker: ...

    def register(c):
        c.singleton(Worker, factory=two)
        c.singleton(Queue, factory=one)
        c.singleton(Pool, factory=pool)

    container = make(register)
    with pytest.raises(OSError, match="no pool"):
        await container.start()
    assert calls == ["pool"]


@pytest.mark.parametrize("how", ["anyio", "asyncio"])
async def test_a_cancelled_start_leaves_no_task_running(make, new_tasks, how):
    log = []

    async def pool():
        try:
            await anyio.sleep_forever()
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                await anyio.lowlevel.checkpoint()
            log.append("undone")

    container = make(lambda c: c.singleton(Pool, factory=pool))
    if how == "anyio":
        async with anyio.create_task_group() as group:
            group.start_soon(container.start)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    else:
        task = asyncio.create_task(container.start())
        await anyio.wait_all_tasks_blocked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert log == ["undone"]
    assert new_tasks() == set()


async def test_a_cancelled_start_is_no_death(new_tasks):
    deaths = []
    left = []

    async def steps():
        yield "value"
        left.append("left")

    owned = Owned("it", steps(), deaths.append)
    task = asyncio.create_task(owned.start())
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it has yielded; the starter has not seen it yet
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert deaths == []
    assert new_tasks() == set()


async def test_a_cancelled_close_still_ends_every_owner_task(make, new_tasks):
    log = []

    def steps_of(name):
        async def steps():
            try:
                yield name
                await anyio.sleep_forever()
            finally:
                log.append(name)

        return steps

    def register(c):
        c.singleton("a", factory=steps_of("a"))
        c.singleton("b", factory=steps_of("b"))

    container = make(register)
    await container.start()
    with anyio.move_on_after(0.01):
        await container.aclose()
    assert sorted(log) == ["a", "b"]
    assert new_tasks() == set()


async def test_a_resource_whose_task_group_fails_in_use_is_told(make):
    deaths = []
    broke = anyio.Event()

    async def crash():
        await broke.wait()
        raise RuntimeError("worker gone")

    async def pool():
        async with anyio.create_task_group() as group:
            group.start_soon(crash)
            yield Pool()

    container = make(lambda c: c.singleton(Pool, factory=pool))
    died = anyio.Event()

    def on_death(binding, error):
        deaths.append((binding.name, error))
        died.set()

    container.on_resource_death = on_death
    await container.start()
    broke.set()
    await died.wait()
    [(name, error)] = deaths
    assert name == "Pool"
    assert [str(item) for item in error.exceptions] == ["worker gone"]
    await container.aclose()
    assert len(deaths) == 1


async def test_a_resource_that_is_cancelled_in_use_is_told(make):
    deaths = []

    async def pool():
        try:
            yield asyncio.current_task()
        except asyncio.CancelledError:
            return

    container = make(lambda c: c.singleton(Pool, factory=pool))
    container.on_resource_death = lambda binding, error: deaths.append((binding.name, error))
    await container.start()
    owner = container.get(Pool)
    owner.cancel()
    await asyncio.wait([owner])
    [(name, error)] = deaths
    assert name == "Pool"
    assert isinstance(error, ResourceError)
    assert "Pool ended while it was in use" in str(error)


async def test_nobody_is_told_of_a_regular_end(make):
    deaths = []

    async def pool():
        yield Pool()

    container = make(lambda c: c.singleton(Pool, factory=pool))
    container.on_resource_death = lambda binding, error: deaths.append(error)
    async with container:
        pass
    assert deaths == []


async def test_stopping_twice_tears_down_once(new_tasks):
    left = []

    async def steps():
        yield "value"
        left.append("left")

    owned = Owned("it", steps())
    await owned.stop()
    assert await owned.start() == "value"
    await owned.stop()
    await owned.stop()
    assert left == ["left"]
    assert new_tasks() == set()


async def test_closing_twice_tears_down_once(make):
    log = []
    container = make(lambda c: c.singleton(Pool, factory=recorder(log, "pool")))
    await container.start()
    await container.aclose()
    await container.aclose()
    assert log == ["enter pool", "leave pool"]


@pytest.mark.parametrize("fail", [*WAYS_TO_RAISE, cancel_its_own_task])
async def test_a_resource_that_fails_in_any_way_while_it_starts_fails_who_starts_it(
    fail, new_tasks
):
    async def steps():
        await fail()
        yield "never"

    with pytest.raises((ValueError, CallAbortedError)):
        await Owned("it", steps()).start()
    assert asyncio.current_task().cancelling() == 0
    assert new_tasks() == set()


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_resource_that_fails_in_any_way_while_it_ends_is_told_and_others_are_left(
    fail, make, new_tasks
):
    left = []

    async def other():
        yield Queue()
        left.append("other")

    async def broken():
        yield Pool()
        await fail()

    def register(c):
        c.singleton(Queue, factory=other)
        c.singleton(Pool, factory=broken)

    container = make(register)
    await container.start()
    with pytest.raises((ValueError, CallAbortedError)):
        await container.aclose()
    assert left == ["other"]
    assert new_tasks() == set()


async def test_a_resource_that_sees_an_exit_does_not_end_the_event_loop(new_tasks):
    seen = []

    async def steps():
        try:
            yield "value"
        except SystemExit as error:
            seen.append(error)
            raise

    owned, leave = Owned("it", steps()), SystemExit(1)
    await owned.start()
    await owned.stop(leave)
    assert seen == [leave]
    assert new_tasks() == set()
