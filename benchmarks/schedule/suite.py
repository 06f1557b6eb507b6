"""Ten thousand schedules: looking for due ones and firing them, beside APScheduler's job store."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apscheduler.job import Job
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger
from harness import Case, Facts, Plan, Section, Target, Work, measure

from lexigram import clock
from lexigram.schedule import JobTarget, Schedule, ScheduleConfig, Scheduler
from lexigram.schedule.targets import Targets
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade
from lexigram.tasks.queue import TaskQueue
from lexigram.tasks.store_sql import SqlStore
from lexigram.testing.fakes import FakeClock

TITLE = "Schedules"
PEERS = ("apscheduler", "sqlalchemy", "cronsim")
POSTGRES = os.environ.get("LEX_BENCH_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MANY = 10_000
DUE = 500  # fired in one round
PEER = "APScheduler job store"


def nothing() -> None:
    """What the peer's jobs call."""


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    folder = Path(tempfile.mkdtemp())
    yield await _section(plan, "SQLite", f"sqlite:///{folder / 'ours.db'}", folder)
    shutil.rmtree(folder)
    import asyncpg

    schema = f"lex_bench_{os.getpid()}_{secrets.token_hex(4)}"
    try:
        admin = await asyncpg.connect(POSTGRES, timeout=5)
    except (OSError, asyncpg.PostgresError) as error:
        yield Section("PostgreSQL", "", [], skipped=[f"no PostgreSQL answers: {error}"])
        return
    await admin.execute(f"CREATE SCHEMA {schema}")
    try:
        yield await _section(plan, "PostgreSQL", f"{POSTGRES}?search_path={schema}", None)
    finally:
        await admin.execute(f"DROP SCHEMA {schema} CASCADE")
        await admin.close()


async def _section(plan: Plan, title: str, url: str, folder: Path | None) -> Section:
    async with Database(url) as db:
        await upgrade(db)
        scheduler = Scheduler(
            db, ScheduleConfig(batch=DUE), targets=Targets(TaskQueue(SqlStore(db)))
        )
        with clock.use(FakeClock(NOON)) as now:
            await _filled(db, scheduler)
            peer = _peer(folder) if folder else None
            look = Work("look, nothing due", "µs", "lexigram", [Case("lexigram", _look(scheduler))])
            fire = Work(
                "fire one tick", "µs", "lexigram", [Case("lexigram", _fire(scheduler, now), DUE)]
            )
            if peer:
                look.cases.append(Case(PEER, _peer_look(peer)))
                fire.cases.append(Case(PEER, _peer_fire(peer), DUE))
                look.baseline = fire.baseline = PEER
                look.targets = {"lexigram": Target(1.0, PEER)}
                fire.targets = {"lexigram": Target(1.0, PEER)}
            await measure([look], plan)
            await measure([fire], plan, rounds=plan.few(20))
            rate = DUE * 1e9 / (fire.cases[0].median * DUE)
    note = (
        f"{MANY:,} schedules, of which {DUE} fall due at a time. Firing records the tick, enqueues a "
        f"durable job and moves the schedule on, in transactions of {DUE}: {rate:,.0f} ticks a second. "
    )
    if folder:
        note += (
            "The peer (version 3, its SQLAlchemy store on SQLite in WAL, synchronous NORMAL) asks for "
            "due jobs and moves each on in a transaction of its own, as its scheduler does; it records "
            "no tick and keeps no job, so two of its processes fire twice."
        )
    return Section(title, note, [look, fire])


async def _filled(db: Database, scheduler: Scheduler) -> None:
    for first in range(0, MANY, DUE):
        async with db.transaction():
            for number in range(first, first + DUE):
                # DUE of them share each second of the cycle, so that a round has its fill.
                await scheduler.create(
                    Schedule(
                        name=f"s{number}",
                        every=float(MANY // DUE),
                        start=NOON + timedelta(seconds=1 + first // DUE),
                        target=JobTarget(name="work"),
                    )
                )


def _look(scheduler: Scheduler):
    async def run(loops: int) -> int:
        began = time.perf_counter_ns()
        for _ in range(loops):
            assert await scheduler.fire_due() == 0
        return time.perf_counter_ns() - began

    return run


def _fire(scheduler: Scheduler, now: FakeClock):
    async def run(loops: int) -> int:
        assert loops == DUE
        now.advance(1)
        began = time.perf_counter_ns()
        fired = await scheduler.fire_due()
        spent = time.perf_counter_ns() - began
        assert fired == DUE, fired
        return spent

    return run


class Peer:
    def __init__(self, store: SQLAlchemyJobStore) -> None:
        self.store, self.now = store, NOON


def _peer(folder: Path) -> Peer:
    from sqlalchemy import create_engine, event

    engine = create_engine(f"sqlite:///{folder / 'peer.db'}")

    @event.listens_for(engine, "connect")
    def _settings(connection, _) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")

    scheduler = BackgroundScheduler(timezone=UTC)
    store = SQLAlchemyJobStore(engine=engine)
    scheduler.add_jobstore(store)
    store.start(scheduler, "default")
    for number in range(MANY):
        first = NOON + timedelta(seconds=1 + number // DUE)
        trigger = IntervalTrigger(seconds=MANY // DUE, start_date=first, timezone=UTC)
        job = Job(
            scheduler,
            id=f"s{number}",
            func="schedule.suite:nothing",
            trigger=trigger,
            executor="default",
            args=(),
            kwargs={},
            name=f"s{number}",
            misfire_grace_time=60,
            coalesce=True,
            max_instances=1,
            next_run_time=first,
        )
        store.add_job(job)
    return Peer(store)


def _peer_look(peer: Peer):
    def run(loops: int) -> int:
        began = time.perf_counter_ns()
        for _ in range(loops):
            assert not peer.store.get_due_jobs(peer.now)
            peer.store.get_next_run_time()
        return time.perf_counter_ns() - began

    return run


def _peer_fire(peer: Peer):
    def run(loops: int) -> int:
        assert loops == DUE
        peer.now += timedelta(seconds=1)
        began = time.perf_counter_ns()
        due = peer.store.get_due_jobs(peer.now)
        for job in due:
            times = job._get_run_times(peer.now)
            job._modify(next_run_time=job.trigger.get_next_fire_time(times[-1], peer.now))
            peer.store.update_job(job)
        spent = time.perf_counter_ns() - began
        assert len(due) == DUE
        return spent

    return run
