"""Many tasks and threads at once: one singleton, one scoped instance, no false cycles."""

import asyncio
import sys
import threading

import anyio
import pytest


class Slow: ...


class Service:
    def __init__(self, slow: Slow) -> None:
        self.slow = slow


class Other:
    def __init__(self, service: Service, slow: Slow) -> None:
        self.service, self.slow = service, slow


class Gate:
    """A factory that waits to be let through, and counts."""

    def __init__(self, kind=Slow):
        self.kind = kind
        self.open = anyio.Event()
        self.calls = 0

    async def __call__(self):
        self.calls += 1
        await self.open.wait()
        return self.kind()


async def gathered(gate, *asks):
    tasks = [asyncio.create_task(ask()) for ask in asks]
    await anyio.wait_all_tasks_blocked()
    gate.open.set()
    return await asyncio.gather(*tasks)


@pytest.mark.parametrize("lifetime", ["singleton", "transient"])
async def test_three_resolves_at_once_of_a_class_with_an_async_built_dependency(make, lifetime):
    """Defect 1: in the old line two of the three raised a false CircularDependencyError."""
    gate = Gate()

    def register(c):
        c.singleton(Slow, factory=gate)
        getattr(c, lifetime)(Service)

    container = make(register)
    found = await gathered(gate, *[lambda: container.resolve(Service)] * 3)
    assert {item.slow for item in found} == {container.get(Slow)}
    assert len(set(found)) == (1 if lifetime == "singleton" else 3)
    assert gate.calls == 1


async def test_resolves_of_different_classes_on_one_async_singleton_share_it(make):
    """Defect 1."""
    gate = Gate()

    def register(c):
        c.singleton(Slow, factory=gate)
        c.singleton(Service)
        c.transient(Other)

    container = make(register)
    service, other, slow, again = await gathered(
        gate,
        lambda: container.resolve(Service),
        lambda: container.resolve(Other),
        lambda: container.resolve(Slow),
        lambda: container.resolve(Service),
    )
    assert other.service is service is again
    assert other.slow is service.slow is slow
    assert gate.calls == 1


async def test_two_tasks_racing_in_one_scope_get_one_instance(make):
    gate = Gate()
    container = make(lambda c: (c.scoped(Slow, factory=gate), c.scoped(Service)))
    async with container.scope() as scope:
        one, two, slow = await gathered(
            gate,
            lambda: scope.resolve(Service),
            lambda: scope.resolve(Service),
            lambda: scope.resolve(Slow),
        )
    assert one is two
    assert one.slow is slow
    assert gate.calls == 1


async def test_two_tasks_racing_for_a_scoped_resource_enter_it_once(make):
    entered, left = [], []
    gate = anyio.Event()

    async def steps():
        entered.append("in")
        await gate.wait()
        yield Slow()
        left.append("out")

    container = make(lambda c: (c.scoped(Slow, factory=steps), c.scoped(Service)))
    async with container.scope() as scope:
        tasks = [asyncio.create_task(scope.resolve(Service)) for _ in range(3)]
        await anyio.wait_all_tasks_blocked()
        gate.set()
        assert len(set(await asyncio.gather(*tasks))) == 1
        assert await scope.resolve(Slow) is tasks[0].result().slow
    assert entered == ["in"]
    assert left == ["out"]


async def test_racing_tasks_get_one_instance_of_a_plain_class_on_a_large_async_graph(make):
    """The await lies in a function of its own, between the look and the store."""
    gate = Gate()
    layers = [Slow]
    for number in range(12):
        below = layers[-1]

        def __init__(self, below) -> None:
            self.below = below

        __init__.__annotations__ = {"below": below}
        layers.append(type(f"Layer{number}", (), {"__init__": __init__}))

    class Top:
        def __init__(self, layer: layers[-1]) -> None:
            self.layer = layer

    def register(c):
        c.transient(Slow, factory=gate)
        for layer in layers[1:]:
            c.transient(layer)
        c.scoped(Top)

    container = make(register)
    async with container.scope() as scope:
        found = await gathered(gate, *[lambda: scope.resolve(Top)] * 3)
    assert len(set(found)) == 1


async def test_when_the_builder_of_a_singleton_is_cancelled_a_waiter_takes_over(make):
    gate = Gate()
    container = make(lambda c: (c.singleton(Slow, factory=gate), c.singleton(Service)))
    builder = asyncio.create_task(container.resolve(Service))
    await anyio.wait_all_tasks_blocked()
    waiter = asyncio.create_task(container.resolve(Slow))
    await anyio.wait_all_tasks_blocked()
    builder.cancel()
    await anyio.wait_all_tasks_blocked()
    assert gate.calls == 2
    gate.open.set()
    assert await waiter is container.get(Slow)
    assert builder.cancelled()
    assert (await container.resolve(Service)).slow is container.get(Slow)


async def test_when_the_builder_in_a_scope_is_cancelled_a_waiter_takes_over(make):
    gate = Gate()
    container = make(lambda c: (c.scoped(Slow, factory=gate), c.scoped(Service)))
    async with container.scope() as scope:
        builder = asyncio.create_task(scope.resolve(Service))
        await anyio.wait_all_tasks_blocked()
        waiters = [asyncio.create_task(scope.resolve(Service)) for _ in range(2)]
        await anyio.wait_all_tasks_blocked()
        builder.cancel()
        await anyio.wait_all_tasks_blocked()
        gate.open.set()
        one, two = await asyncio.gather(*waiters)
        assert one is two
    assert builder.cancelled()
    assert gate.calls == 2


async def test_a_cancelled_waiter_disturbs_nobody(make):
    gate = Gate()
    container = make(lambda c: (c.singleton(Slow, factory=gate), c.scoped(Service)))
    async with container.scope() as scope:
        tasks = [asyncio.create_task(scope.resolve(Service)) for _ in range(3)]
        await anyio.wait_all_tasks_blocked()
        tasks[1].cancel()
        await anyio.wait_all_tasks_blocked()
        gate.open.set()
        assert await tasks[0] is await tasks[2]
    assert gate.calls == 1


async def test_waiters_see_the_failure_of_the_build_and_the_next_ask_tries_again(make):
    calls = []
    gate = anyio.Event()

    async def flaky() -> Slow:
        calls.append("try")
        await gate.wait()
        if len(calls) == 1:
            raise OSError("not yet")
        return Slow()

    container = make(lambda c: (c.singleton(Slow, factory=flaky), c.singleton(Service)))
    tasks = [asyncio.create_task(container.resolve(Service)) for _ in range(3)]
    await anyio.wait_all_tasks_blocked()
    gate.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(item) for item in outcomes] == ["not yet"] * 3
    assert calls == ["try"]
    assert (await container.resolve(Service)).slow is container.get(Slow)


async def test_a_task_started_by_a_build_may_wait_for_that_build(make):
    """Not a cycle: the build does not wait for the task."""
    found = []

    async def starts_a_task(container):
        task = asyncio.create_task(background(container))
        await anyio.lowlevel.checkpoint()
        service = Slow()
        service.task = task
        return service

    async def background(container):
        found.append(await container.resolve(Slow))

    container = make(lambda c: c.singleton(Slow, factory=starts_a_task))
    slow = await container.resolve(Slow)
    await slow.task
    assert found == [slow]


# Threads


@pytest.fixture
def tiny_switch_interval():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(count, work):
    ready = threading.Barrier(count)
    found, failures = [], []

    def run():
        ready.wait()
        try:
            found.append(work())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    return found


def test_eight_threads_racing_for_one_singleton_get_one(make, tiny_switch_interval):
    built = []

    class Counted:
        def __init__(self) -> None:
            for _ in range(50):
                pass
            built.append(self)

    class On:
        def __init__(self, counted: Counted) -> None:
            self.counted = counted

    for _ in range(30):
        built.clear()
        container = make(lambda c: (c.singleton(Counted), c.singleton(On)))
        found = in_threads(8, lambda c=container: c.get(On))
        assert len({id(item) for item in found}) == 1
        assert len(built) == 1


def test_eight_threads_racing_for_a_marked_class_get_one(make, tiny_switch_interval):
    from lexigram.di import singleton

    for _ in range(30):

        @singleton
        class Marked: ...

        container = make(lambda c: None)
        found = in_threads(8, lambda c=container, m=Marked: c.get(m))
        assert len({id(item) for item in found}) == 1


def test_a_thread_and_an_event_loop_racing_for_one_singleton_get_one(make, tiny_switch_interval):
    class Counted:
        def __init__(self) -> None:
            for _ in range(50):
                pass

    for number in range(20):
        container = make(lambda c: c.singleton(Counted))
        asks = iter([container.get, lambda t, c=container: asyncio.run(c.resolve(t))] * 2)
        lock = threading.Lock()

        def work(asks=asks, lock=lock):
            with lock:
                ask = next(asks)
            return ask(Counted)

        found = in_threads(4, work)
        assert len({id(item) for item in found}) == 1, number


def test_threads_racing_for_a_transient_all_get_their_own(make, tiny_switch_interval):
    class Shared: ...

    class Own:
        def __init__(self, shared: Shared) -> None:
            self.shared = shared

    container = make(lambda c: (c.singleton(Shared), c.transient(Own)))
    found = in_threads(8, lambda: container.get(Own))
    assert len({id(item) for item in found}) == 8
    assert len({id(item.shared) for item in found}) == 1
