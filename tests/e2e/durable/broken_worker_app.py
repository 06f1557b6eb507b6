"""Applications whose worker has a defect: ``lexigram worker broken_worker_app:create_…``."""

from lexigram.app import Application
from lexigram.leasing import Backoff
from lexigram.sql import SqlModule
from lexigram.workflow import WorkflowModule
from lexigram.workflow.durable.worker import pools as pools_module
from lexigram.workflow.durable.worker import worker as worker_module


def _create(defects: int) -> Application:
    """The task that claims fails so many times."""
    worker_module.RESTART = Backoff(first=0.01, cap=0.01)
    claim_on, raised = pools_module.Pools._claim_on, []

    async def with_defect(self, pool):
        if len(raised) < defects:
            raised.append(1)
            raise SystemExit("a defect of the worker")
        await claim_on(self, pool)

    pools_module.Pools._claim_on = with_defect
    return Application("broken", modules=[SqlModule, WorkflowModule])


def create_always() -> Application:
    return _create(10**9)


def create_once() -> Application:
    return _create(1)
