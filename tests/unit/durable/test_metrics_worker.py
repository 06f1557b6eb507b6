"""Figures that need a mishap: a failing claim, a lost race, a lost lease, a lock left behind."""

from collections import Counter

import pytest

from lexigram.contracts.data.locks import ResourceLockKind
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    DurableEngine,
    DurableError,
    NewRun,
    RunPlan,
    StepPlan,
    Worker,
    WorkerConfig,
)
from lexigram.workflow.durable.store.records import Claimed

pytestmark = pytest.mark.anyio

PLAN = RunPlan(workflow_id="w", steps=[StepPlan(name="a", step_type="parse", handler="work")])


class Figures:
    def __init__(self):
        self.counted = Counter()

    def incr(self, name, value=1, **labels):
        self.counted[name, *sorted(labels.items())] += value

    def observe(self, name, value, **labels):
        pass


@pytest.fixture
async def engine():
    async with Database("sqlite://") as database:
        await upgrade(database)
        yield DurableEngine(database)


@pytest.fixture
async def start(engine):
    workers = []

    async def run(figures):
        worker = Worker(
            WorkerConfig(consumers={"*": 1}, poll_interval=0.05),
            engine,
            {"work": lambda: None},
            metrics=figures,
        )
        workers.append(worker)
        await worker.start()

    yield run
    for worker in workers:
        await worker.stop(0.0)


async def test_a_claim_that_fails_and_one_that_loses_a_race_are_counted(engine, start, monkeypatch):
    real, asked = engine.store.claim, []

    async def claim(*arguments):
        asked.append(arguments)
        if len(asked) == 1:
            raise DurableError("the database is away")
        if len(asked) == 2:
            return Claimed(claims=(), lost_races=3)
        return await real(*arguments)

    monkeypatch.setattr(engine.store, "claim", claim)
    figures = Figures()
    await start(figures)
    await wait_until(lambda: len(asked) > 2)
    assert figures.counted["claim_error", ("pool", "*")] == 1
    assert figures.counted["claim_lost_race", ("pool", "*")] == 3


async def test_an_end_that_comes_too_late_is_counted_by_its_phase(engine, start, monkeypatch):
    async def finish(ends):
        return [None for _ in ends]

    await engine.submit(PLAN, [NewRun()])
    monkeypatch.setattr(engine.store, "finish", finish)
    figures = Figures()
    await start(figures)
    await wait_until(lambda: figures.counted["lease_lost", ("phase", "complete")])
    assert figures.counted["step_completed", ("pool", "*")] == 0


async def test_a_lock_that_was_left_behind_is_swept_and_counted(engine, start):
    await engine.locks.acquire("K", "somebody", kind=ResourceLockKind.CLI, ttl=0.001)
    figures = Figures()
    await start(figures)
    await wait_until(lambda: figures.counted["resource_lock_swept",])
