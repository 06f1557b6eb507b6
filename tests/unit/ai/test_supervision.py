"""Workers under supervision: started, started again, told of, stopped in reverse."""

import anyio
import pytest
from tests.retries import HOPELESS

from lexigram import clock
from lexigram.ai.workers.supervision import RECOVERED_AFTER_SECONDS, Supervisor, WorkerState
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.leasing.backoff import Backoff
from lexigram.testing.fakes.clock import FakeClock
from lexigram.testing.waiting import wait_until

SOON = Backoff(first=0.001, cap=0.002)


class Steady:
    """Works until it is stopped; can be told to die."""

    def __init__(self, log=None):
        self.log = [] if log is None else log
        self.starts = 0
        self.ended = anyio.Event()
        self.failure = None

    async def start(self):
        self.starts += 1
        self.ended, self.failure = anyio.Event(), None

    async def stop(self):
        self.log.append(type(self).__name__)
        self.ended.set()

    async def wait(self):
        await self.ended.wait()
        if self.failure is not None:
            raise self.failure

    def die(self, error):
        self.failure = error
        self.ended.set()


class First(Steady): ...


class Second(Steady): ...


class Blocking:
    """A worker of the 0.1 line: ``start`` is the work."""

    def __init__(self):
        self.runs = 0
        self.stopped = anyio.Event()

    async def start(self):
        self.runs += 1
        await self.stopped.wait()

    async def stop(self):
        self.stopped.set()


class Hanging(Steady):
    async def stop(self):
        self.log.append("Hanging")
        await anyio.sleep_forever()


class Unstoppable(Steady):
    async def stop(self):
        self.ended.set()
        raise OSError("no")


class supervised:
    """A supervisor of these workers in a group of its own."""

    def __init__(self, *workers, **settings):
        async def load():
            return workers

        self.supervisor = Supervisor(load, restart=SOON, **settings)

    async def __aenter__(self):
        self.tasks = await anyio.create_task_group().__aenter__()
        self.supervisor.open(self.tasks)
        await self.supervisor.start()
        return self.supervisor

    async def __aexit__(self, *error):
        try:
            await self.supervisor.stop()
        finally:
            await self.tasks.__aexit__(None, None, None)


async def names_of_tasks():
    await anyio.lowlevel.checkpoint()
    return {task.name for task in anyio.get_running_tasks()}


async def test_each_worker_is_a_task_named_after_its_class():
    async with supervised(First(), Second()) as supervisor:
        assert {"worker.First", "worker.Second"} <= await names_of_tasks()
        assert supervisor.is_running
    assert not {"worker.First", "worker.Second"} & await names_of_tasks()


async def test_a_second_start_while_they_run_does_nothing():
    worker = First()
    async with supervised(worker) as supervisor:
        await wait_until(lambda: worker.starts == 1)
        await supervisor.start()
        await anyio.lowlevel.checkpoint()
        assert worker.starts == 1


async def test_they_can_be_started_again_after_a_stop():
    worker = First()
    async with supervised(worker) as supervisor:
        await supervisor.stop()
        await supervisor.start()
        assert worker.starts == 2
        assert (await supervisor.health(1.0)).status is HealthStatus.HEALTHY


async def test_they_stop_in_reverse():
    log = []
    async with supervised(First(log), Second(log)):
        pass
    assert log == ["Second", "First"]


async def test_a_failed_worker_is_restarted_and_reported():
    told = []
    worker = First()
    async with supervised(
        worker, on_failure=lambda who, error: told.append((who, str(error)))
    ) as supervisor:
        await wait_until(lambda: worker.starts == 1)
        worker.die(RuntimeError("out of luck"))
        await wait_until(lambda: worker.starts == 2)
        assert told == [(worker, "out of luck")]
        [entry] = supervisor.entries
        assert (entry.state, entry.failures) == (WorkerState.RUNNING, 1)


async def test_a_worker_that_ends_unexpectedly_has_failed():
    worker = First()
    async with supervised(worker) as supervisor:
        await wait_until(lambda: worker.starts == 1)
        worker.ended.set()
        await wait_until(lambda: worker.starts == 2)
        assert "ended unexpectedly" in supervisor.entries[0].last_error


async def test_a_worker_that_cannot_start_is_tried_again_until_it_can():
    class Slow(First):
        async def start(self):
            await super().start()
            if self.starts < 3:
                raise ConnectionError("not there yet")

    worker = Slow()
    async with supervised(worker) as supervisor:
        await wait_until(lambda: worker.starts == 3)
        assert supervisor.entries[0].failures == 2


async def test_health_is_degraded_after_a_death_and_good_again_when_it_lived_for_a_while():
    worker, other = First(), Second()
    with clock.use(FakeClock()) as fake:
        async with supervised(worker, other) as supervisor:
            assert (await supervisor.health(1.0)).status is HealthStatus.HEALTHY
            await wait_until(lambda: worker.starts == 1)
            worker.die(RuntimeError("gone"))
            await wait_until(lambda: worker.starts == 2)
            health = await supervisor.health(1.0)
            assert health.status is HealthStatus.DEGRADED
            assert "First" in health.message
            assert "gone" in health.message
            assert health.details["First"]["failures"] == 1
            fake.advance(RECOVERED_AFTER_SECONDS)
            assert (await supervisor.health(1.0)).status is HealthStatus.HEALTHY


async def test_health_is_bad_when_no_worker_runs():
    worker = First()
    async with supervised(worker) as supervisor:
        supervisor._restart = Backoff(first=60, cap=60)
        await wait_until(lambda: worker.starts == 1)
        worker.die(RuntimeError("gone"))
        await wait_until(lambda: supervisor.entries[0].state is WorkerState.RESTARTING)
        assert (await supervisor.health(1.0)).status is HealthStatus.UNHEALTHY


async def test_what_a_worker_says_of_itself_counts():
    class Honest(First):
        async def health_check(self, timeout=5.0):
            return HealthCheckResult("x", HealthStatus.DEGRADED, "half of it")

    class Broken(Second):
        async def health_check(self, timeout=5.0):
            raise RuntimeError("cannot even say")

    async with supervised(Honest(), Broken()) as supervisor:
        health = await supervisor.health(1.0)
        assert health.status is HealthStatus.DEGRADED
        assert "half of it" in health.message
        assert "cannot even say" in health.message


async def test_a_start_that_never_returns_is_the_work():
    worker = Blocking()
    async with supervised(worker) as supervisor:
        await wait_until(lambda: worker.runs == 1)
        assert (await supervisor.health(1.0)).status is HealthStatus.HEALTHY
    assert worker.runs == 1


async def test_one_that_does_not_stop_is_cancelled_and_the_others_stop_all_the_same():
    log = []
    hanging, steady = Hanging(log), First(log)
    async with supervised(steady, hanging, stop_within=0.05):
        await wait_until(lambda: steady.starts == 1)
    assert sorted(log) == ["First", "Hanging"]
    assert "worker.Hanging" not in await names_of_tasks()


async def test_failures_to_stop_are_raised_together_once_all_are_stopped():
    log = []
    with pytest.raises(ExceptionGroup) as caught:
        async with supervised(First(log), Unstoppable(log), Unstoppable(log)):
            pass
    assert len(caught.value.exceptions) == 2
    assert log == ["First"]


async def test_a_death_while_stopping_does_not_start_it_again():
    class Late(First):
        async def stop(self):
            self.die(RuntimeError("on the way out"))

    worker = Late()
    async with supervised(worker):
        await wait_until(lambda: worker.starts == 1)
    assert worker.starts == 1


@pytest.mark.parametrize("make", HOPELESS)
async def test_a_worker_that_died_of_an_error_that_is_not_retryable_stays_down(make):
    bad, other = First(), Second()
    async with supervised(bad, other) as supervisor:
        bad.die(make())
        await wait_until(lambda: supervisor.entries[0].state is WorkerState.FAILED)
        other.die(OSError())
        await wait_until(lambda: other.starts == 2)
        result = await supervisor.health(5.0)
    assert bad.starts == 1
    assert result.status is HealthStatus.DEGRADED
    assert f"First is failed: {type(make()).__name__}" in result.message
