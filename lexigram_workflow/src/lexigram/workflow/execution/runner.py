"""Runs a pipeline or a graph, tries again after a failure, and goes on where it stopped."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, TypeAlias
from uuid import uuid4

import anyio
from attrs import evolve

from lexigram.concurrency import is_retryable
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.workflow.checkpoints import CheckpointStoreProtocol
from lexigram.contracts.workflow.limits import MAX_SECONDS
from lexigram.workflow._limits import check_time_limit
from lexigram.workflow.errors import (
    GraphCancelledError,
    HumanInputRequiredError,
    WorkflowNotFoundError,
    WorkflowStateError,
)
from lexigram.workflow.execution.checkpoint import WorkflowCheckpoint
from lexigram.workflow.graph.engine import WorkflowEngine
from lexigram.workflow.graph.state import WorkflowState
from lexigram.workflow.pipeline.context import PipelineContext
from lexigram.workflow.pipeline.pipeline import Pipeline
from lexigram.workflow.types import GraphResult

Outcome: TypeAlias = Result[GraphResult | PipelineContext, Exception]

_MISSING: Any = object()


class WorkflowRunner:
    """Runs one workflow. After an Err it tries up to ``max_retries`` times more, after
    ``retry_delay`` seconds.

    With a checkpoint store, here as ``checkpoint`` or in the workflow itself, a retry goes on
    with the same run and repeats nothing that finished; without one it begins anew. A
    ``WorkflowCheckpoint`` gets the last state of every run that stops.
    """

    def __init__(
        self,
        engine: WorkflowEngine | Pipeline,
        *,
        max_retries: int = 0,
        retry_delay: float = 1.0,
        checkpoint: WorkflowCheckpoint | CheckpointStoreProtocol | None = None,
        timeout: float | None = None,
    ) -> None:
        if max_retries < 0 or not 0 <= retry_delay <= MAX_SECONDS:
            raise ValueError(
                f"max_retries must not be negative, retry_delay 0 to {MAX_SECONDS} s: "
                f"{max_retries!r}, {retry_delay!r}"
            )
        check_time_limit("timeout", timeout)
        self._states = checkpoint if isinstance(checkpoint, WorkflowCheckpoint) else None
        if checkpoint is not None and not isinstance(checkpoint, WorkflowCheckpoint):
            engine = engine.keep_in(checkpoint, every_step=True)
        if timeout is not None and isinstance(engine, Pipeline):
            engine = engine.equip(timeout=timeout)
        self._workflow = engine
        self._max_retries = max_retries
        self._retry_delay = retry_delay
        self._timeout = timeout

    @property
    def workflow(self) -> WorkflowEngine | Pipeline:
        """What is run."""
        return self._workflow

    async def run(
        self,
        input: Any = "",  # noqa: A002 - the known name
        *,
        state: WorkflowState | Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> Outcome:
        """Run to the end, or to a pause: HumanInputRequiredError with the id of the run.

        For a pipeline ``input`` is its context or a mapping of facts; any other value is the
        fact "input". Err is that of the last attempt.
        """
        run_id = run_id or uuid4().hex
        outcome = await self._stopping(self._begin(input, state, run_id))
        return await self._retry(outcome, input, state, run_id)

    async def resume(
        self,
        human_response: Any = _MISSING,
        *,
        state: WorkflowState | Mapping[str, Any] | None = None,
        response_key: str = "human_response",
        run_id: str | None = None,
    ) -> Outcome:
        """Answer a paused run, named by its id or by the state of the pause.

        Without an answer: go on with a run that failed or whose process is gone.
        ``response_key`` is where the state gets the answer, for nodes that look there.
        """
        if state is None and run_id is None:
            raise WorkflowStateError("resume needs a run", hint="give run_id= or state=")
        if isinstance(self._workflow, Pipeline):
            found = run_id or str((state or {}).get("_run_id") or "")
            answer = () if human_response is _MISSING else (human_response,)
            outcome = await self._stopping(self._workflow.resume(found, *answer))
            return await self._retry(outcome, None, None, found)
        if human_response is _MISSING:
            outcome = await self._stopping(self._workflow.recover(_choose_run_id(run_id, state)))
            return await self._retry(outcome, None, None, _choose_run_id(run_id, state))
        run: Any = run_id
        if run is None:
            given = state.as_dict() if isinstance(state, WorkflowState) else dict(state or {})
            run = {**given, response_key: human_response}
        outcome = await self._stopping(self._workflow.resume(run, human_response))
        stopped = outcome.error if isinstance(outcome, Err) else outcome.value
        after = run_id or str(getattr(stopped, "run_id", ""))
        return await self._retry(outcome, None, None, after)

    async def cancel(self, run_id: str) -> bool:
        """Stop a run; False when there is none."""
        return await self._workflow.cancel(run_id)

    # --- how ---

    def _begin(self, message: Any, state: Any, run_id: str) -> Awaitable[Any]:
        workflow = self._workflow
        if isinstance(workflow, Pipeline):
            return workflow.execute(_facts(message, state), run_id=run_id)
        config = None
        if self._timeout is not None:
            config = evolve(workflow.config, total_timeout=self._timeout)
        return workflow.execute(message, state, run_id=run_id, config=config)

    async def _retry(self, outcome: Outcome, message: Any, state: Any, run_id: str) -> Outcome:
        for _ in range(self._max_retries):
            if isinstance(outcome, Ok) or not _may_retry(outcome.error):
                break
            await anyio.sleep(self._retry_delay)
            outcome = await self._again(message, state, run_id)
        return outcome

    async def _again(self, message: Any, state: Any, run_id: str) -> Outcome:
        """Go on with the run where it is kept, else begin anew."""
        going_on: Awaitable[Any] = (
            self._workflow.resume(run_id)
            if isinstance(self._workflow, Pipeline)
            else self._workflow.recover(run_id)
        )
        try:
            return await self._stopping(going_on)
        except WorkflowNotFoundError:
            return await self._stopping(self._begin(message, state, uuid4().hex))

    async def _stopping(self, going: Awaitable[Any]) -> Outcome:
        """Wait for it, and keep the state it stopped with."""
        try:
            outcome: Outcome = await going
        except HumanInputRequiredError as pause:
            self._keep(pause.checkpoint_id, pause.state)
            raise
        if isinstance(outcome, Err):
            self._keep(getattr(outcome.error, "run_id", None), getattr(outcome.error, "state", {}))
        elif isinstance(outcome.value, PipelineContext):
            self._keep(outcome.value.run_id, outcome.value.step_results)
        else:
            self._keep(outcome.value.run_id, outcome.value.final_state)
        return outcome

    def _keep(self, run_id: str | None, state: Mapping[str, Any]) -> None:
        if self._states is not None and run_id is not None:
            self._states.save(run_id, state)


def _choose_run_id(run_id: str | None, state: Any) -> str:
    return run_id or str(state.get("_run_id"))


def _facts(message: Any, state: Any) -> PipelineContext | dict[str, Any]:
    if isinstance(message, PipelineContext):
        return message
    given = state.as_dict() if isinstance(state, WorkflowState) else dict(state or {})
    facts = {key: value for key, value in given.items() if key[:1] != "_"}
    if isinstance(message, Mapping):
        return {**facts, **message}
    return facts if message in ("", None) else {**facts, "input": message}


def _may_retry(error: Exception) -> bool:
    """A run that was cancelled stays so; so does one whose error says that nothing can help."""
    cause = getattr(error, "error", None)
    if isinstance(error, GraphCancelledError) or isinstance(cause, WorkflowStateError):
        return False
    return is_retryable(error)
