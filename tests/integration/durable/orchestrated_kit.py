"""Workers on both databases for runs of pipelines, graphs and sagas."""

import pytest

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.testing import wait_until
from lexigram.workflow.durable import DurableEngine, OrchestratedRuns, Terms, Worker, WorkerConfig

GUARD = 60.0  # against a hang only


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def engine(request):
    return DurableEngine(request.getfixturevalue(request.param), Terms(lease=5.0))


@pytest.fixture
def runs(engine):
    return OrchestratedRuns(engine)


@pytest.fixture
async def work(engine, runs):
    """Start workers that are stopped at the end."""
    workers = []

    async def start(consumers=None, runs=runs):
        config = WorkerConfig(consumers=consumers or {"*": 4}, poll_interval=0.2)
        worker = Worker(config, engine, runs.handlers)
        workers.append(worker)
        await worker.start()
        return worker

    yield start
    for worker in workers:
        await worker.stop(0.0)


async def asks(runs, run_id, *steps):
    """Wait until exactly these wait for an answer."""

    async def there():
        questions = (await runs.status(run_id)).questions
        return sorted(one.step for one in questions) == sorted(steps)

    await wait_until(there, timeout=GUARD)
    return (await runs.status(run_id)).questions


async def over(runs, run_id, expected=RunStatus.COMPLETED):
    """Wait for the end, and look how it ended."""
    final = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)

    async def there():
        return (await runs.status(run_id)).status in final

    await wait_until(there, timeout=GUARD)
    run = await runs.status(run_id)
    assert run.status is expected, run
    return run
