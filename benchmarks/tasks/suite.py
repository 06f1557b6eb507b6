"""Jobs: how many a second, and how soon they start, beside procrastinate, pgqueuer, taskiq, arq."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
from harness import Case, Facts, Plan, Section, Target, Work, measure
from tasks import ours, peers

TITLE = "Jobs"
PEERS = ("procrastinate", "pgqueuer", "taskiq", "taskiq-redis", "arq", "asyncpg", "redis")
POSTGRES = os.environ.get("LEX_BENCH_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
REDIS = os.environ.get("LEX_BENCH_REDIS", "redis://127.0.0.1:6379/0")

OURS = "lexigram PostgreSQL"
PROCRASTINATE = "procrastinate"
TASKIQ = "taskiq in memory"
JOBS = 3_000
FEW = 300  # for those that take milliseconds a job
JOBS_A_SECOND = 4_000
ENQUEUE_TO_START_MS = 5.0


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    await _drop_left_behind()
    async with AsyncExitStack() as stack:
        folder = Path(tempfile.mkdtemp())
        stack.callback(shutil.rmtree, folder)
        made = await _contestants(stack, folder)
        yield await _memory(plan, made)
        yield await _work(plan, made)
        yield await _latency(plan, made)


async def _contestants(stack: AsyncExitStack, folder: Path) -> dict[str, Any]:
    enter = stack.enter_async_context
    sqlite = f"sqlite:///{folder / 'jobs.db'}"
    return {
        "lexigram memory": ours.memory(),
        "lexigram SQLite": await enter(ours.on_database(sqlite)),
        OURS: await enter(ours.on_database(await enter(_database()))),
        f"{OURS}, 10 at a time": await enter(
            ours.on_database(await enter(_database()), concurrency=10)
        ),
        PROCRASTINATE: await enter(peers.procrastinate(await enter(_database()))),
        "pgqueuer": await enter(peers.pgqueuer(await enter(_database()))),
        "arq (Redis)": await enter(peers.arq(REDIS)),
        "taskiq (Redis list)": await enter(peers.taskiq_redis(REDIS)),
        TASKIQ: await enter(peers.taskiq_memory()),
    }


async def _memory(plan: Plan, made: dict[str, Any]) -> Section:
    def both(contestant: Any) -> Any:
        async def run(count: int) -> int:
            if isinstance(contestant, peers.TaskiqMemory):
                return await contestant.work(count)
            # Theirs is sending and doing in one: so ours counts the enqueueing too.
            enqueued = await contestant.enqueue(count)
            await contestant.queue.clear()
            return enqueued + await contestant.work(count)

        return run

    names = ("lexigram memory", TASKIQ)
    cases = [Case(name, both(made[name]), loops=JOBS) for name in names]
    work = Work("a no-op job", "µs", TASKIQ, cases)
    await measure([work], plan, rounds=plan.few(9))
    note = (
        "Enqueue, run and keep the end, 3,000 jobs. taskiq's in-memory broker calls the function"
        " when it is sent: no order, priority, lease, cancel or wait for free hands."
    )
    return Section("In memory", note, [work])


async def _work(plan: Plan, made: dict[str, Any]) -> Section:
    jobs = {PROCRASTINATE: FEW, "arq (Redis)": FEW, "taskiq (Redis list)": 1_000}
    names = [name for name in made if name not in ("lexigram memory", TASKIQ)]
    cases = [Case(name, made[name].work, loops=jobs.get(name, JOBS)) for name in names]
    by_peer = Work(
        "a no-op job, by the peer",
        "µs",
        PROCRASTINATE,
        cases,
        {OURS: Target(1 / 8, PROCRASTINATE)},
    )
    await measure([by_peer], plan, rounds=plan.few(7))
    absolute = Work("the same", "µs", OURS, cases, {OURS: Target(1e6 / JOBS_A_SECOND)})
    note = (
        "One worker process works off jobs that were enqueued before; the clock stops when all"
        " ends are written. Ours takes 100 jobs at a time where nothing else is said, keeps every"
        " finished job with its result, and obeys priority, leases, cancelling, dependencies."
        " pgqueuer takes batches of 100 and moves finished jobs to a log; procrastinate runs 30"
        " at a time; arq and taskiq are on Redis and keep no result; taskiq's list has no"
        " acknowledgement: a killed worker loses its jobs."
        f" Target: {JOBS_A_SECOND:,} a second and 8 times procrastinate."
    )
    return Section("Jobs of one worker process", note, [by_peer, absolute])


async def _latency(plan: Plan, made: dict[str, Any]) -> Section:
    names = ("lexigram memory", "lexigram SQLite", OURS, PROCRASTINATE, "pgqueuer")
    cases = [Case(name, made[name].latency, loops=1) for name in names]
    work = Work("enqueue → start", "ms", OURS, cases, {OURS: Target(ENQUEUE_TO_START_MS)})
    rounds = plan.few(200)
    async with AsyncExitStack() as stack:
        for name in names:
            await stack.enter_async_context(made[name].serving())
        await measure([work], plan, rounds=rounds)
    note = (
        "From the call of enqueue to the first line of the handler, while the workers are idle:"
        f" median of {rounds} single jobs. Producer and worker share one process. On SQLite a"
        " worker in another process finds the job by its poll, within tasks.poll (1 s)."
    )
    return Section("How soon a job starts", note, [work])


@asynccontextmanager
async def _database() -> AsyncIterator[str]:
    """A new database for one contestant, dropped at the end."""
    name = f"lex_bench_{os.getpid()}_{secrets.token_hex(3)}"
    admin = await asyncpg.connect(POSTGRES)
    await admin.execute(f"CREATE DATABASE {name}")
    try:
        yield f"{POSTGRES.rsplit('/', 1)[0]}/{name}"
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()


async def _drop_left_behind() -> None:
    """Databases of runs that were killed."""
    admin = await asyncpg.connect(POSTGRES)
    for row in await admin.fetch("SELECT datname FROM pg_database WHERE datname ~ '^lex_bench_'"):
        name = row["datname"]
        if not Path(f"/proc/{name.split('_')[2]}").exists():
            await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    await admin.close()
