"""What a scheduler keeps and fires, with a clock in the hand."""

import asyncio
from datetime import UTC, datetime, timedelta

import anyio
import anyio.lowlevel
import pytest

from lexigram.events import EventBus
from lexigram.schedule import (
    CallbackTarget,
    CronExpressionError,
    FiringState,
    InvalidScheduleError,
    JobTarget,
    MessageTarget,
    MisfirePolicy,
    Schedule,
    ScheduleConfig,
    ScheduleExistsError,
    ScheduleFired,
    ScheduleMissed,
    ScheduleNotFoundError,
    Scheduler,
    ScheduleState,
    ScheduleStateError,
    ScheduleTargetError,
    UnknownTimezoneError,
    store,
)
from lexigram.schedule.callbacks import Callbacks
from lexigram.schedule.report import Reporter
from lexigram.schedule.targets import Targets
from lexigram.testing import wait_until
from lexigram.testing.fakes import FakeMetrics

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def job(name="s", work="work", **settings):
    if not {"cron", "every", "at"} & set(settings):
        settings["every"] = 60.0
    return Schedule(name=name, target=JobTarget(name=work), **settings)


def call(name="s", **settings):
    settings.setdefault("every", 60.0)
    return Schedule(name=name, target=CallbackTarget(name=name), **settings)


async def ticks(scheduler, name="s"):
    return [firing.tick for firing in reversed(await scheduler.firings(name, 1000))]


async def test_a_tick_fires_when_its_time_has_come_and_once(scheduler, now, queue):
    info = await scheduler.create(job())
    assert info.next_tick == NOON + timedelta(minutes=1)
    assert await scheduler.fire_due() == 0
    now.advance(60)
    assert await scheduler.fire_due() == 1
    assert await scheduler.fire_due() == 0
    (firing,) = await scheduler.firings("s")
    assert (firing.tick, firing.state, firing.manual) == (info.next_tick, FiringState.FIRED, False)
    assert firing.reference == "job-0"
    assert await queue.names() == ["work"]


async def test_of_several_processes_one_fires_a_tick(make, now, queue):
    many = [make() for _ in range(4)]
    await many[0].create(job())
    for _ in range(5):
        now.advance(60)
        assert sum([await each.fire_due() for each in many]) == 1
    assert len(await queue.names()) == 5


async def test_a_clock_that_goes_back_an_hour_fires_nothing_twice(make, now, queue):
    first, restarted = make(), make()
    await first.create(job(every=600.0))
    for _ in range(12):
        now.advance(600)
        await first.fire_due()
    fired = await ticks(first)
    now.set(now.now() - timedelta(hours=1))
    for _ in range(6):
        now.advance(600)
        assert await first.fire_due() == 0
        assert await restarted.fire_due() == 0
    now.advance(600)
    assert await first.fire_due() == 1
    assert await ticks(first) == [*fired, fired[-1] + timedelta(seconds=600)]


async def test_a_pruned_record_is_not_fired_again_by_a_clock_that_goes_back(make, now):
    scheduler = make(keep_firings=1.0)
    await scheduler.create(job())
    now.advance(60)
    await scheduler.fire_due()
    now.advance(10)
    assert await scheduler.forget() == 1
    now.set(NOON)
    now.advance(65)
    assert await scheduler.fire_due() == 0


@pytest.mark.parametrize(
    ("policy", "minutes"),
    [
        (MisfirePolicy.SKIP, []),
        (MisfirePolicy.FIRE_ONCE, [180]),
        (MisfirePolicy.FIRE_ALL, [120, 150, 180]),
    ],
)
async def test_a_clock_that_jumps_forward_follows_the_misfire_policy(
    scheduler, now, policy, minutes
):
    await scheduler.create(job(every=1800.0, misfire=policy, catch_up=3, grace=10.0))
    now.advance(3 * 3600 + 600)
    assert await scheduler.fire_due() == len(minutes)
    assert await ticks(scheduler) == [NOON + timedelta(minutes=each) for each in minutes]
    assert (await scheduler.get("s")).next_tick == NOON + timedelta(minutes=210)


async def test_a_daily_time_in_berlin_fires_once_a_day_over_both_changes(scheduler, now):
    for day in (datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)):
        now.set(day)
        name = f"nightly {day:%B}"
        await scheduler.create(job(name, cron="30 2 * * *", timezone="Europe/Berlin"))
        for _ in range(3 * 24 * 4):
            now.advance(900)
            await scheduler.fire_due()
        await scheduler.pause(name)
    assert await ticks(scheduler, "nightly March") == [
        datetime(2026, 3, 28, 1, 30, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 0, tzinfo=UTC),  # 02:30 does not exist: 03:00 summer time
        datetime(2026, 3, 30, 0, 30, tzinfo=UTC),
    ]
    assert await ticks(scheduler, "nightly October") == [
        datetime(2026, 10, 24, 0, 30, tzinfo=UTC),
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC),  # the first of two
        datetime(2026, 10, 26, 1, 30, tzinfo=UTC),
    ]


async def test_more_ticks_than_fit_one_transaction_all_fire_in_order(make, now):
    scheduler = make(batch=7)
    await scheduler.create(job(every=1.0, misfire=MisfirePolicy.FIRE_ALL))
    now.advance(30)
    assert await scheduler.fire_due() == 30
    assert await ticks(scheduler) == [NOON + timedelta(seconds=each) for each in range(1, 31)]


async def test_a_single_time_fires_once_and_is_finished(scheduler, now):
    await scheduler.create(job(at=NOON + timedelta(minutes=5)))
    now.advance(301)
    assert await scheduler.fire_due() == 1
    info = await scheduler.get("s")
    assert (info.state, info.next_tick) == (ScheduleState.FINISHED, None)
    now.set(NOON)
    now.advance(301)
    assert await scheduler.fire_due() == 0


async def test_the_end_is_the_last_tick(scheduler, now):
    await scheduler.create(job(every=60.0, end=NOON + timedelta(minutes=2)))
    for _ in range(5):
        now.advance(60)
        await scheduler.fire_due()
    assert len(await ticks(scheduler)) == 2
    assert (await scheduler.get("s")).state is ScheduleState.FINISHED


async def test_jitter_puts_a_tick_off_and_keeps_its_name(scheduler, now):
    info = await scheduler.create(job(every=60.0, jitter=50.0))
    assert info.next_tick < info.due_at < info.next_tick + timedelta(seconds=50)
    now.set(info.due_at - timedelta(milliseconds=1))
    assert await scheduler.fire_due() == 0
    now.set(info.due_at)
    assert await scheduler.fire_due() == 1
    assert await ticks(scheduler) == [info.next_tick]


async def test_a_paused_schedule_misses_nothing_and_goes_on_with_the_next_tick(scheduler, now):
    await scheduler.create(job())
    assert (await scheduler.pause("s")).state is ScheduleState.PAUSED
    assert (await scheduler.pause("s")).next_tick is None
    now.advance(3600)
    assert await scheduler.fire_due() == 0
    info = await scheduler.resume("s")
    assert info.next_tick == NOON + timedelta(minutes=61)
    assert await scheduler.resume("s") == info
    now.advance(60)
    assert await scheduler.fire_due() == 1


async def test_what_cannot_be_paused_or_resumed_is_refused(scheduler, now):
    await scheduler.create(job(at=NOON + timedelta(seconds=1)))
    now.advance(1)
    await scheduler.fire_due()
    with pytest.raises(ScheduleStateError, match="is finished and cannot be paused"):
        await scheduler.pause("s")
    with pytest.raises(ScheduleStateError, match="is finished and cannot be resumed"):
        await scheduler.resume("s")


async def test_run_now_fires_beside_the_ticks_every_time(scheduler, now, queue):
    await scheduler.create(job())
    await scheduler.pause("s")
    first, second = await scheduler.run_now("s"), await scheduler.run_now("s")
    assert (first.manual, first.reference, second.reference) == (True, "job-0", "job-1")
    assert second.tick > first.tick
    await scheduler.resume("s")
    now.advance(60)
    await scheduler.run_now("s")  # in the same millisecond as the tick
    assert await scheduler.fire_due() == 1
    assert len(await queue.names()) == 4


async def test_the_tick_reaches_the_job_when_asked_for(scheduler, now, db):
    target = JobTarget(name="work", kwargs={"a": 1}, tick_argument="at")
    await scheduler.create(Schedule(name="s", target=target, every=60.0))
    now.advance(60)
    await scheduler.fire_due()
    (row,) = (await db.execute_query("SELECT kwargs FROM jobs")).rows
    assert row["kwargs"] == "{'a': 1, 'at': '2026-01-01T12:01:00+00:00'}"


async def test_a_job_that_is_refused_is_rolled_back_with_its_tick_and_tried_again(
    scheduler, now, queue
):
    await scheduler.create(job("bad", "bad"))
    await scheduler.create(job("good", "good"))
    queue.refuses.add("bad")
    now.advance(60)
    assert await scheduler.fire_due() == 1
    assert await queue.names() == ["good"]
    info = await scheduler.get("bad")
    assert (info.failures, info.next_tick) == (1, NOON + timedelta(minutes=1))
    assert "the queue did not take job 'bad' of schedule 'bad': full" in info.last_error
    assert await scheduler.fire_due() == 0, "not in a loop"
    assert [each.schedule.name for each in await scheduler.failing()] == ["bad"]
    queue.refuses.clear()
    now.advance(5)
    assert await scheduler.fire_due() == 1
    info = await scheduler.get("bad")
    assert (info.failures, info.last_error) == (0, None)
    assert await ticks(scheduler, "bad") == [NOON + timedelta(minutes=1)]


async def test_a_definition_nobody_can_read_does_not_stop_the_others(scheduler, now, db, queue):
    await scheduler.create(job("broken"))
    await scheduler.create(job("good"))
    broken = "UPDATE lexigram_schedules SET definition = replace(definition, '\"UTC\"', '\"Mars\"') WHERE name = 'broken'"
    await db.execute(broken)
    now.advance(60)
    assert await scheduler.fire_due() == 1
    row = await db.execute_query("SELECT last_error FROM lexigram_schedules WHERE name = 'broken'")
    assert "no time zone 'Mars'" in row.rows[0]["last_error"]


async def test_a_schedule_without_a_taker_is_refused(scheduler):
    with pytest.raises(ScheduleTargetError, match="makes messages"):
        await scheduler.create(Schedule(name="s", target=MessageTarget(topic="t"), every=60.0))


async def test_bad_input_is_refused_and_nothing_is_kept(scheduler, now):
    for bad, error in (
        ({"cron": "61 * * * *"}, CronExpressionError),
        ({"cron": "* * * * *", "timezone": "Europe/Berln"}, UnknownTimezoneError),
        ({"at": NOON - timedelta(seconds=1)}, InvalidScheduleError),
        ({"every": 60.0, "end": NOON}, InvalidScheduleError),
    ):
        with pytest.raises(error):
            await scheduler.create(job(**bad))
    assert await scheduler.schedules() == []


async def test_names_are_unique_and_unknown_ones_are_said(scheduler):
    await scheduler.create(job())
    with pytest.raises(ScheduleExistsError, match="there is a schedule 's' already"):
        await scheduler.create(job())
    for method in (scheduler.pause, scheduler.resume, scheduler.run_now, scheduler.upcoming):
        with pytest.raises(ScheduleNotFoundError, match="no schedule 'x'"):
            await method("x")
    with pytest.raises(ScheduleNotFoundError):
        await scheduler.update(job("x"))
    assert await scheduler.get("x") is None
    assert not await scheduler.delete("x")


async def test_an_update_keeps_the_next_tick_unless_the_times_change(scheduler, now):
    await scheduler.create(job())
    now.advance(90)  # its tick is due, and not fired yet
    info = await scheduler.update(job(work="other"))
    assert info.next_tick == NOON + timedelta(minutes=1)
    info = await scheduler.update(job(every=3600.0))
    assert info.next_tick == NOON + timedelta(hours=1)
    await scheduler.pause("s")
    assert (await scheduler.update(job())).state is ScheduleState.PAUSED


async def test_a_deleted_schedule_is_gone_with_its_firings(scheduler, now):
    await scheduler.create(job())
    await scheduler.run_now("s")
    assert await scheduler.delete("s")
    assert await scheduler.firings("s") == []
    assert await scheduler.get("s") is None


async def test_upcoming_shows_ticks_also_of_a_paused_one(scheduler):
    await scheduler.create(job(cron="0 9 * * MON", timezone="Europe/Berlin"))
    await scheduler.pause("s")
    assert await scheduler.upcoming("s", 2) == [
        datetime(2026, 1, 5, 8, tzinfo=UTC),
        datetime(2026, 1, 12, 8, tzinfo=UTC),
    ]


async def test_what_a_transaction_rolls_back_never_was(scheduler, db):
    with pytest.raises(RuntimeError):
        async with db.transaction():
            await scheduler.create(job())
            raise RuntimeError
    assert await scheduler.get("s") is None


async def test_code_that_changes_changes_its_schedule_and_code_that_goes_retires_it(make, now):
    await make().declare([job("a"), job("b")])
    now.advance(90)
    later = make()
    await later.declare([job("a")])
    assert await later.retire(["a"]) == ["b"]
    assert await later.retire(["a"]) == []
    assert (await later.get("a")).next_tick == NOON + timedelta(minutes=1), "missed while down"
    gone = await later.get("b")
    assert (gone.state, gone.next_tick) == (ScheduleState.INACTIVE, None)
    await later.declare([job("a", every=3600.0), job("b")])
    assert (await later.get("a")).next_tick == NOON + timedelta(hours=1)
    assert (await later.get("b")).next_tick == NOON + timedelta(minutes=2)


async def test_an_application_retires_only_what_it_declared_itself(make, now):
    await make(owner="web").declare([job("web")])
    await make().create(job("by hand"))
    worker = make(owner="worker")
    await worker.declare([job("worker")])
    assert await worker.retire(["worker"]) == []
    assert len(await worker.schedules(ScheduleState.ACTIVE)) == 3


async def test_a_declared_schedule_stays_paused_over_a_restart(make, now):
    await make().declare([job()])
    await make().pause("s")
    await make().declare([job()])
    assert (await make().get("s")).state is ScheduleState.PAUSED


async def test_a_declared_schedule_is_changed_in_the_code_only(make, now):
    scheduler = make()
    await scheduler.declare([job()])
    with pytest.raises(ScheduleStateError, match="declared in code and cannot be changed"):
        await scheduler.update(job(every=5.0))
    with pytest.raises(ScheduleStateError, match="declared in code and cannot be deleted"):
        await scheduler.delete("s")
    await scheduler.retire([])
    assert await scheduler.delete("s")


async def test_a_name_given_at_run_time_is_not_taken_over_by_code(make, now):
    await make().create(job())
    with pytest.raises(ScheduleExistsError, match="declared in code, but that name"):
        await make().declare([job()])


async def test_a_callback_runs_and_its_end_is_recorded(scheduler, callbacks, now):
    seen = []

    async def good(firing):
        seen.append(firing.tick)

    async def bad(firing):
        raise ValueError("no")

    callbacks.known.update(good=good, bad=bad)
    await scheduler.create(call("good"))
    await scheduler.create(call("bad"))
    await scheduler.create(call("elsewhere"))
    now.advance(60)
    assert await scheduler.fire_due() == 3
    assert await callbacks.run_pending() == 2
    assert await callbacks.run_pending() == 0
    states = {name: (await scheduler.firings(name))[0] for name in ("good", "bad", "elsewhere")}
    assert states["good"].state is FiringState.DONE
    assert (states["bad"].state, states["bad"].error) == (FiringState.FAILED, "ValueError: no")
    assert states["elsewhere"].state is FiringState.PENDING
    assert seen == [NOON + timedelta(minutes=1)]


async def test_events_are_told_to_those_who_listen(make, now):
    bus, told, metrics = EventBus(), [], FakeMetrics()
    bus.subscribe(ScheduleFired, told.append)
    bus.subscribe(ScheduleMissed, told.append)
    scheduler = make(Reporter(metrics, bus))
    await scheduler.create(job(grace=1.0, misfire=MisfirePolicy.FIRE_ONCE))
    now.advance(150)
    await scheduler.fire_due()
    missed, fired = told
    assert (missed.schedule, missed.first, missed.count) == ("s", NOON + timedelta(minutes=1), 1)
    assert (fired.tick, fired.reference) == (NOON + timedelta(minutes=2), "job-0")
    assert metrics.counted("schedule.fired", manual="no") == 1
    assert metrics.counted("schedule.missed") == 1


async def test_a_message_is_staged_with_its_tick_under_an_id_of_the_tick(db, now):
    staged = []

    class Outbox:
        async def stage(self, topic, message):
            assert db.in_transaction
            staged.append((topic, message))

    scheduler = Scheduler(db, targets=Targets(outbox=Outbox()))
    target = MessageTarget(topic="prices", payload={"all": True}, headers={"a": "b"})
    await scheduler.create(Schedule(name="s", target=target, every=60.0))
    now.advance(60)
    assert await scheduler.fire_due() == 1
    ((topic, message),) = staged
    assert (topic, message.payload) == ("prices", {"all": True})
    assert message.id == "s@2026-01-01T12:01:00+00:00"
    assert message.headers == {"a": "b", "schedule": "s", "tick": "2026-01-01T12:01:00+00:00"}
    assert (await scheduler.firings("s"))[0].reference == message.id


async def test_a_callback_is_not_taken_while_its_process_renews_it(db, scheduler, now):
    going, release = anyio.Event(), anyio.Event()

    async def slow(firing):
        going.set()
        await release.wait()

    config = ScheduleConfig(callback_lease=5.0)  # on a busy machine too it is renewed in time
    mine, other = (Callbacks(db, config, Reporter()) for _ in range(2))
    mine.known["s"] = other.known["s"] = slow
    await scheduler.create(call())
    await scheduler.run_now("s")

    async def lease():
        return (await db.execute_query(store.UNFINISHED)).rows[0]["lease"]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mine.renew)
        async with anyio.create_task_group() as work:
            assert await mine.start_pending(work, asyncio.current_task()) == 1
            await going.wait()
            first = await lease()
            if db.dialect == "sqlite":  # leases by the clock of the machine, which is ours here
                now.advance(4.0)
            await wait_until(lambda: _grown(lease, first))
            assert await other.run_pending() == 0
            release.set()
        tasks.cancel_scope.cancel()
    assert (await scheduler.firings("s"))[0].state is FiringState.DONE


async def _grown(lease, first):
    return (await lease()) > first


async def test_a_callback_whose_lease_ran_out_is_run_by_another_process(db, scheduler, now):
    seen = []

    async def note(firing):
        seen.append(firing.schedule)

    await scheduler.create(call())
    await scheduler.run_now("s")
    await db.execute("UPDATE lexigram_schedule_firings SET lease = 1, holder = 'a dead one'")
    callbacks = Callbacks(db, ScheduleConfig(), Reporter())
    callbacks.known["s"] = note
    assert await callbacks.run_pending() == 1
    assert seen == ["s"]


async def test_no_more_callbacks_run_at_once_than_allowed(db, scheduler, now):
    running, most = 0, 0

    async def work(firing):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1

    callbacks = Callbacks(db, ScheduleConfig(callback_limit=3), Reporter())
    callbacks.known["s"] = work
    await scheduler.create(call())
    for _ in range(7):
        await scheduler.run_now("s")
    counts = [await callbacks.run_pending() for _ in range(4)]
    assert (counts, most) == ([3, 3, 1, 0], 3)
