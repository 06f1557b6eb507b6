"""What a run of a workflow gives back."""

from __future__ import annotations

from typing import Any

from attrs import define, field, frozen

from lexigram.contracts.workflow.types import SagaStep
from lexigram.workflow.pipeline.context import StepExecutionResult, StepStatus

__all__ = ["GraphResult", "NodeResult", "SagaStep", "StepExecutionResult", "StepStatus"]


@frozen
class NodeResult:
    """One run of one node: what it changed in the state, and how long it took."""

    node_name: str
    output: dict[str, Any]
    duration_ms: float = 0.0
    error: str | None = None
    # its result was stored by an earlier attempt, so it did not run again
    skipped: bool = False

    @property
    def succeeded(self) -> bool:
        """True without an error."""
        return self.error is None


@define
class GraphResult:
    """A run that reached its end."""

    final_state: dict[str, Any]
    # in the order in which their changes were taken over
    node_results: list[NodeResult] = field(factory=list[NodeResult])
    # how many nodes ran, over all processes that worked on the run
    iterations: int = 0
    duration_ms: float = 0.0
    # the terminal node reached last; None when the edges simply ended
    terminated_at: str | None = None
    run_id: str | None = None

    @property
    def output(self) -> Any:
        """``final_state["output"]``."""
        return self.final_state.get("output", "")

    @property
    def succeeded(self) -> bool:
        """True: every node result is a success."""
        return all(result.succeeded for result in self.node_results)
