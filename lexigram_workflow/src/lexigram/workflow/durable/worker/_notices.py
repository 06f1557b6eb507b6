"""Publish what happens to runs and steps in this process."""

from __future__ import annotations

from attrs import evolve

from lexigram.concurrency import as_failure
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.observability import get_logger
from lexigram.workflow.durable.models import run_of_claim, step_of_claim
from lexigram.workflow.durable.plan import LifeCycleEvent, RunPlan, error_text
from lexigram.workflow.durable.store.records import Claim, End, Ended, EndKind, State
from lexigram.workflow.durable.worker.events import Publish, RunNotice

logger = get_logger(__name__)


class Notices:
    """Gives ``publish`` what happens, once at most; what it raises is logged."""

    def __init__(self, publish: Publish, worker_id: str) -> None:
        self._publish = publish
        self._worker_id = worker_id

    async def publish_start(self, claim: Claim, plan: RunPlan) -> None:
        """An attempt begins."""
        if claim.fence == 1:
            await self._announce(LifeCycleEvent.ITEM_START, claim, plan, RunStatus.RUNNING)
        await self._announce(LifeCycleEvent.STEP_START, claim, plan, RunStatus.RUNNING)

    async def publish_end(self, claim: Claim, plan: RunPlan, end: End, ended: Ended) -> None:
        """An attempt ended."""
        done, failed = RunStatus.COMPLETED, RunStatus.FAILED
        if end.kind is EndKind.COMPLETED:
            await self._announce(LifeCycleEvent.STEP_END, claim, plan, done, end.message)
        if ended.state is State.COMPLETED:
            await self._announce(LifeCycleEvent.ITEM_END, claim, plan, done, end.message)
        if end.kind is EndKind.FAILED or ended.state is State.FAILED:
            await self._announce(LifeCycleEvent.STEP_FAILED, claim, plan, failed, end.message)
        if ended.state is State.FAILED:
            await self._announce(LifeCycleEvent.ITEM_FAILED, claim, plan, failed, end.message)

    async def _announce(
        self,
        kind: LifeCycleEvent,
        claim: Claim,
        plan: RunPlan,
        status: RunStatus,
        message: str | None = None,
    ) -> None:
        def notice() -> RunNotice:
            return RunNotice(
                kind=kind,
                run_step=evolve(step_of_claim(claim, plan, self._worker_id), status=status),
                workflow_run=run_of_claim(claim, plan),
                status=status,
                message=message,
            )

        try:
            await self._publish(kind, notice)
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            logger.warning(
                "an event was not published",
                event=kind,
                error=error_text(failure),
                exc_info=failure,
            )
