"""Schedules in an application: declared, injected, started last and stopped first."""

import anyio
import pytest

from lexigram import clock
from lexigram.app import Application
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.infra.schedule import SchedulerProtocol
from lexigram.contracts.infra.tasks.protocols import TaskQueueProtocol
from lexigram.di import Module, Provider, module
from lexigram.schedule import (
    Callbacks,
    CallbackTarget,
    CronExpressionError,
    Firing,
    FiringState,
    InvalidScheduleError,
    JobTarget,
    Schedule,
    ScheduleConfig,
    ScheduleExistsError,
    ScheduleModule,
    Scheduler,
    ScheduleState,
    ScheduleTargetError,
    scheduled,
)
from lexigram.sql import Database, SqlConfig, SqlModule
from lexigram.testing import wait_until
from lexigram.testing.fakes import FakeClock

pytestmark = pytest.mark.anyio


class Notes(list):
    pass


class NotesProvider(Provider):
    async def register(self, container):
        container.singleton(Notes, Notes())


@scheduled("0 3 * * *", name="nightly", timezone="Europe/Berlin")
async def nightly(notes: Notes, firing: Firing):
    """Tidy up."""
    notes.append(firing.schedule)


@scheduled(every=0.1, name="often")
async def often(notes: Notes):
    notes.append("often")


def app(*modules, **settings):
    return Application("test", modules=modules, providers=[NotesProvider()], **settings)


async def test_a_stub_needs_nothing_else_and_fires_by_hand():
    async with app(ScheduleModule.stub(schedules=[nightly])) as running:
        scheduler = await running.container.resolve(SchedulerProtocol)
        callbacks = await running.container.resolve(Callbacks)
        info = await scheduler.get("nightly")
        assert info.schedule.description == "Tidy up."
        await scheduler.run_now("nightly")
        assert await callbacks.run_pending() == 1
        assert running.container.get(Notes) == ["nightly"]


async def test_a_started_application_fires_by_itself(tmp_path):
    sql = SqlModule.configure(SqlConfig(url=f"sqlite:///{tmp_path}/a.db"))
    async with app(sql, ScheduleModule.configure(ScheduleConfig(), schedules=[often])) as running:
        notes = running.container.get(Notes)
        await wait_until(lambda: len(notes) >= 3)
        health = {item.component: item for item in (await running.health_check()).components}
        assert health["schedule"].status is HealthStatus.HEALTHY
        scheduler = await running.container.resolve(Scheduler)
        await scheduler.pause("often")
        await wait_until(lambda: _settled(scheduler))
        count = len(notes)
        await scheduler.run_now("often")
        await wait_until(lambda: len(notes) == count + 1)


async def _settled(scheduler):
    return all(item.state is FiringState.DONE for item in await scheduler.firings("often"))


async def test_a_stop_waits_for_the_callback_that_runs(tmp_path):
    entered, ended = anyio.Event(), []

    @scheduled(every=0.1, name="slow")
    async def slow():
        entered.set()
        await anyio.sleep(0.05)
        ended.append(1)

    sql = SqlModule.configure(SqlConfig(url=f"sqlite:///{tmp_path}/a.db"))
    async with app(sql, ScheduleModule.configure(ScheduleConfig(), schedules=[slow])):
        await entered.wait()
    assert ended


async def test_a_process_that_runs_no_schedules_fires_nothing(tmp_path):
    sql = SqlModule.configure(SqlConfig(url=f"sqlite:///{tmp_path}/a.db"))
    config = ScheduleConfig(run=False)
    async with app(sql, ScheduleModule.configure(config, schedules=[often])) as running:
        provider = next(item for item in running.providers if item.name == "schedule")
        assert provider._runner is None
        assert (await provider.health_check()).message == "does not fire here"


async def test_a_feature_brings_its_schedules_and_sees_what_its_module_sees():
    class Secret:
        pass

    class SecretProvider(Provider):
        async def register(self, container):
            container.singleton(Secret)

    @scheduled(every=60.0, name="feature")
    async def feature(secret: Secret, notes: Notes):
        notes.append(type(secret).__name__)

    feature.__annotations__ = {"secret": Secret, "notes": Notes}

    @module(providers=[SecretProvider], imports=[ScheduleModule.scope(feature)])
    class FeatureModule(Module):
        pass

    async with app(ScheduleModule.stub(schedules=[nightly]), FeatureModule) as running:
        scheduler = await running.container.resolve(Scheduler)
        assert [info.schedule.name for info in await scheduler.schedules()] == [
            "feature",
            "nightly",
        ]
        await scheduler.run_now("feature")
        await (await running.container.resolve(Callbacks)).run_pending()
        assert running.container.get(Notes) == ["Secret"]


async def test_what_leaves_the_code_is_inactive_after_the_next_start(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    for schedules in ([nightly, often], [often]):
        sql = SqlModule.configure(SqlConfig(url=url))
        declared = ScheduleModule.configure(ScheduleConfig(), schedules=schedules)
        async with app(sql, declared) as running:
            scheduler = await running.container.resolve(Scheduler)
            wanted = ScheduleState.ACTIVE if nightly in schedules else ScheduleState.INACTIVE

            async def reached(scheduler=scheduler, wanted=wanted):
                return (await scheduler.get("nightly")).state is wanted

            await wait_until(reached)


async def test_a_function_for_schedules_made_at_run_time():
    async def tidy(notes: Notes):
        notes.append("tidied")

    async with app(ScheduleModule.stub(callbacks={"tidy": tidy})) as running:
        scheduler = await running.container.resolve(Scheduler)
        await scheduler.create(Schedule(name="s", target=CallbackTarget(name="tidy"), every=60.0))
        await scheduler.run_now("s")
        assert await (await running.container.resolve(Callbacks)).run_pending() == 1
        assert running.container.get(Notes) == ["tidied"]


async def test_a_job_without_a_queue_is_an_error_of_the_start():
    jobs = Schedule(name="s", target=JobTarget(name="work"), every=60.0)
    with pytest.raises(Exception) as caught:
        async with app(ScheduleModule.stub(schedules=[jobs])):
            pass
    assert isinstance(caught.value.__cause__ or caught.value, ScheduleTargetError)
    assert "TasksModule.configure()" in str(caught.value.__cause__ or caught.value)


async def test_a_callback_nobody_has_is_an_error_of_the_start():
    lost = Schedule(name="s", target=CallbackTarget(name="x"), every=60.0)
    with pytest.raises(Exception) as caught:
        async with app(ScheduleModule.stub(schedules=[lost])):
            pass
    assert "no function has that name" in str(caught.value.__cause__ or caught.value)


def test_a_wrong_declaration_is_an_error_of_its_line():
    with pytest.raises(CronExpressionError):

        @scheduled("61 * * * *")
        async def wrong(): ...

    with pytest.raises(InvalidScheduleError, match="is not an async function"):

        @scheduled("* * * * *")
        def plain(): ...

    with pytest.raises(InvalidScheduleError, match="is no schedule"):
        ScheduleModule.configure(schedules=[lambda: None])
    with pytest.raises(ScheduleExistsError, match="two schedules are named 'nightly'"):
        same = Schedule(name="nightly", target=CallbackTarget(name="nightly"), every=60.0)
        ScheduleModule.configure(schedules=[nightly, same])


async def test_the_queue_of_the_application_is_used(tmp_path):
    taken = []

    class Queue:
        async def enqueue(self, task):
            from lexigram.contracts.core.result import Ok

            taken.append(task["name"])
            return Ok("1")

    class QueueProvider(Provider):
        name = "tasks"

        async def register(self, container):
            container.bind(TaskQueueProtocol, Queue())

    jobs = Schedule(name="s", target=JobTarget(name="work"), every=60.0)
    made = Application(
        "test", modules=[ScheduleModule.stub(schedules=[jobs])], providers=[QueueProvider()]
    )
    async with made as running:
        await (await running.container.resolve(Scheduler)).run_now("s")
    assert taken == ["work"]


async def test_health_names_the_schedule_whose_tick_cannot_be_fired():
    class Queue:
        async def enqueue(self, task):
            raise RuntimeError("full")

    class QueueProvider(Provider):
        name = "tasks"

        async def register(self, container):
            container.bind(TaskQueueProtocol, Queue())

    jobs = Schedule(name="s", target=JobTarget(name="work"), every=60.0)
    with clock.use(FakeClock()) as now:
        stub = ScheduleModule.stub(schedules=[jobs])
        async with Application("test", modules=[stub], providers=[QueueProvider()]) as running:
            now.advance(60)
            await (await running.container.resolve(Scheduler)).fire_due()
            (health,) = [
                item
                for item in (await running.health_check()).components
                if item.component == "schedule"
            ]
    assert (health.status, health.message) == (HealthStatus.DEGRADED, "cannot fire s")


async def test_a_loop_whose_database_fails_says_so_and_goes_on_when_it_is_back(tmp_path):
    sql = SqlModule.configure(SqlConfig(url=f"sqlite:///{tmp_path}/a.db"))
    async with app(sql, ScheduleModule.configure(ScheduleConfig(), schedules=[often])) as running:
        provider = next(item for item in running.providers if item.name == "schedule")
        database = await running.container.resolve(Database)
        notes = running.container.get(Notes)
        await wait_until(lambda: notes)
        await database.execute("ALTER TABLE lexigram_schedules RENAME TO away")
        await wait_until(lambda: provider._runner.problem)
        assert (await provider.health_check()).status is HealthStatus.UNHEALTHY
        await database.execute("ALTER TABLE away RENAME TO lexigram_schedules")
        count = len(notes)
        await wait_until(lambda: len(notes) > count)
        assert (await provider.health_check()).status is HealthStatus.HEALTHY
