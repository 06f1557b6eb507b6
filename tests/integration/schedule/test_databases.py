"""Schedules on files and servers: many processes at once, indexes, the real job queue."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime

import anyio
import pytest

from lexigram import clock
from lexigram.schedule import JobTarget, Schedule, ScheduleConfig, Scheduler, store
from lexigram.schedule.targets import Targets
from lexigram.sql import Database, SqlConfig
from lexigram.tasks.queue import TaskQueue
from lexigram.tasks.store_sql import SqlStore
from lexigram.testing.fakes import FakeClock

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEDULES = 10_000


@pytest.fixture
def url(migrated_url):
    return migrated_url


@pytest.fixture
async def db(url):
    async with Database(url) as database:
        yield database


@pytest.fixture
def now():
    with clock.use(FakeClock(NOON)) as fake:
        yield fake


def job(name, **settings):
    return Schedule(name=name, target=JobTarget(name="work"), **settings)


async def count(db, table):
    return (await db.execute_query(f"SELECT count(*) AS n FROM {table}")).rows[0]["n"]


async def test_processes_that_look_at_the_same_moment_fire_each_tick_once(db, url, now):
    async with AsyncExitStack() as stack:
        config = SqlConfig(url=url, busy_timeout=30.0)
        others = [await stack.enter_async_context(Database(config)) for _ in range(4)]
        many = [Scheduler(each, targets=Targets(TaskQueue(SqlStore(each)))) for each in others]
        for number in range(20):
            await many[0].create(job(f"s{number}", every=1.0))
        for _ in range(5):
            now.advance(1)
            async with anyio.create_task_group() as looking:
                for scheduler in many:
                    looking.start_soon(scheduler.fire_due)
    assert await count(db, "lexigram_schedule_firings") == 100
    assert await count(db, "lexigram_jobs") == 100


@pytest.mark.quick
async def test_the_job_of_a_tick_is_in_the_queue_and_in_the_record(db, now):
    queue = TaskQueue(SqlStore(db))
    scheduler = Scheduler(db, targets=Targets(queue))
    await scheduler.create(job("s", every=60.0))
    now.advance(60)
    assert await scheduler.fire_due() == 1
    (firing,) = await scheduler.firings("s")
    assert (await queue.get_job(firing.reference)).name == "work"


async def test_a_tick_that_is_rolled_back_leaves_no_job(db, now):
    class Failing(TaskQueue):
        async def enqueue_many(self, tasks):
            await super().enqueue_many(tasks)
            raise RuntimeError("power cut")

    scheduler = Scheduler(db, targets=Targets(Failing(SqlStore(db))))
    await scheduler.create(job("s", every=60.0))
    now.advance(60)
    assert await scheduler.fire_due() == 0
    assert await count(db, "lexigram_jobs") == 0
    assert await count(db, "lexigram_schedule_firings") == 0
    assert (await scheduler.get("s")).last_error == "power cut"


async def test_finding_what_is_due_among_ten_thousand_reads_the_index(db, now):
    numbers = {
        "postgresql": f"SELECT n FROM generate_series(1, {SCHEDULES}) AS g (n)",
        "sqlite": "WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g"
        f" WHERE n < {SCHEDULES}) SELECT n FROM g",
    }[db.dialect]
    await db.execute(
        "INSERT INTO lexigram_schedules"
        " (name, definition, state, origin, owner, next_tick, due, failures)"
        f" SELECT 's' || n, '', 'active', 'runtime', '', n, n, 0 FROM ({numbers}) AS r"
    )
    await db.execute("ANALYZE lexigram_schedules")
    assert await count(db, "lexigram_schedules") == SCHEDULES
    sql = store.STATEMENTS[db.dialect]
    for statement, params, index in (
        (sql.due, (100, 100), "ix_lexigram_schedules_due"),
        (store.NEXT_DUE, (), "ix_lexigram_schedules_due"),
        (sql.claim, (1, '["a"]', 16, 1, "h"), "ix_lexigram_schedule_firings_lease"),
        (store.FORGET, (1,), "ix_lexigram_schedule_firings_fired"),
    ):
        plan = await explained(db, statement, params)
        assert index in plan, plan
        if "schedules_due" in index:
            assert "Seq Scan" not in plan
            assert "SCAN lexigram_schedules\n" not in f"{plan}\n"


async def explained(db, statement, params):
    if db.dialect == "sqlite":
        found = await db.execute_query(f"EXPLAIN QUERY PLAN {statement}", params)
        return "\n".join(row["detail"] for row in found.rows)
    async with db.transaction():
        # Empty tables are cheaper to scan than an index; what is asked is whether it fits.
        await db.execute("SET LOCAL enable_seqscan = off")
        found = await db.execute_query(f"EXPLAIN {statement}", params)
    return "\n".join(row["QUERY PLAN"] for row in found.rows)


@pytest.mark.service("postgresql")
async def test_news_of_another_process_wakes_the_one_that_waits(own_schema):
    async with Database(own_schema) as db, Database(own_schema) as other:
        scheduler = Scheduler(db, ScheduleConfig(poll=60.0))
        async with scheduler.wakeup.waiting() as waiter:
            await waiter.wait(at_most=0.2)
            await Scheduler(other, targets=Targets(TaskQueue(SqlStore(other)))).create(
                job("s", every=60.0)
            )
            with anyio.fail_after(60):
                assert await waiter.wait()


@pytest.mark.service("postgresql")
async def test_a_claim_takes_no_more_than_its_limit_whatever_plan_the_server_chooses(
    own_schema,
):
    """A subquery that is scanned once for each row of the table locks further rows each time."""
    async with Database(own_schema) as db:
        for tick in range(7):
            row = {"schedule": "s", "tick": tick, "manual": 0, "fired": 0, "state": "running"}
            await db.execute_insert(
                "lexigram_schedule_firings", {**row, "callback": "work", "lease": 1}
            )
        await db.execute("ANALYZE lexigram_schedule_firings")
        async with db.transaction():
            for plan in ("hashjoin", "mergejoin", "hashagg", "sort", "material", "memoize"):
                await db.execute(f"SET LOCAL enable_{plan} = off")
            claim = store.STATEMENTS["postgresql"].claim
            taken = await db.execute_query(claim, (2, '["work"]', 3, 10, "me"))
        assert len(taken.rows) == 3
