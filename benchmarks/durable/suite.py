"""Durable runs: steps a second and how soon they start, beside DBOS, procrastinate and pgqueuer."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from durable import dbos_peer, history, ours
from harness import Case, Facts, Plan, Section, Target, Work, measure
from tasks import peers
from tasks.suite import _database, _drop_left_behind

TITLE = "Durable runs"
PEERS = ("dbos", "procrastinate", "pgqueuer", "asyncpg")
OURS = "lexigram PostgreSQL"
SQLITE = "lexigram SQLite"
PROCRASTINATE = "procrastinate"
PGQUEUER = "pgqueuer"
DBOS = "DBOS"
STEPS = 10_000  # 2,000 runs of five
FEW = 300  # for those that take milliseconds a job
STEPS_A_SECOND = 12_000
SQLITE_STEPS_A_SECOND = 50_000
START_MS = 3.0


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    await _drop_left_behind()
    async with AsyncExitStack() as stack:
        folder = Path(tempfile.mkdtemp())
        stack.callback(shutil.rmtree, folder)
        enter = stack.enter_async_context
        made = {
            SQLITE: await enter(ours.on_database(f"sqlite:///{folder / 'runs.db'}")),
            OURS: await enter(ours.on_database(await enter(_database()))),
            f"{OURS}, 10 at a time": await enter(
                ours.on_database(await enter(_database()), consumers=10)
            ),
            PROCRASTINATE: await enter(peers.procrastinate(await enter(_database()))),
            PGQUEUER: await enter(peers.pgqueuer(await enter(_database()))),
            DBOS: await enter(dbos_peer.on_database(await enter(_database()))),
        }
        yield await _work(plan, made)
        yield await _latency(plan, made)
        old = await enter(ours.on_database(await enter(_database())))
        yield await history.facts(old, quick=plan.quick)


async def _work(plan: Plan, made: dict[str, Any]) -> Section:
    cases = [
        Case(name, contestant.work, loops=FEW if name in (PROCRASTINATE, DBOS) else STEPS)
        for name, contestant in made.items()
    ]
    targets = {
        OURS: Target(1e6 / STEPS_A_SECOND),
        SQLITE: Target(1e6 / SQLITE_STEPS_A_SECOND),
    }
    work = Work("a no-op step", "µs", PGQUEUER, cases, targets)
    await measure([work], plan, rounds=plan.few(5))
    note = (
        "One worker process works off 2,000 runs of five steps in 20 groups that were submitted"
        " before; the clock stops when all ends are written and every group has ended. Ours keeps"
        " each attempt with its result, leases, priorities and the count of the group. The peers"
        " do as many single jobs (procrastinate fewer), without steps, locks or groups; DBOS does"
        f" {FEW // 5} workflows of five steps, without locks or groups."
        f" Targets: {STEPS_A_SECOND:,} steps a second on PostgreSQL, {SQLITE_STEPS_A_SECOND:,}"
        " on SQLite, on a quiet machine."
    )
    return Section("Steps of one worker process", note, [work])


async def _latency(plan: Plan, made: dict[str, Any]) -> Section:
    names = (SQLITE, OURS, PROCRASTINATE, PGQUEUER)
    cases = [Case(name, made[name].latency, loops=1) for name in names]
    work = Work("submit → start", "ms", OURS, cases, {OURS: Target(START_MS)})
    rounds = plan.few(100)
    async with AsyncExitStack() as stack:
        for name in names:
            await stack.enter_async_context(made[name].serving())
        await measure([work], plan, rounds=rounds)
    note = (
        "From the call of submit to the first line of the handler, while the workers are idle:"
        f" median of {rounds} single runs. Submitter and worker share one process."
    )
    return Section("How soon a run starts", note, [work])
