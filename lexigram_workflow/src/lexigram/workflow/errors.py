"""What can go wrong in workflows; one class per code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from attrs import frozen

from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.workflow.errors import (
    CheckpointConflictError,
    PipelineExecutionError,
    PipelineStepError,
    WorkflowError,
    WorkflowNotFoundError,
)
from lexigram.workflow._limits import check_time_limit
from lexigram.workflow.bulk.errors import (
    BulkOperationCancelledError,
    BulkOperationError,
    BulkOperationTimeoutError,
)

__all__ = [
    "BulkOperationCancelledError",
    "BulkOperationError",
    "BulkOperationTimeoutError",
    "CheckpointConflictError",
    "CycleDetectedError",
    "GraphCancelledError",
    "GraphExecutionError",
    "GraphProblem",
    "GraphTimeoutError",
    "GraphValidationError",
    "HumanInputRequiredError",
    "NodeExecutionError",
    "PipelineExecutionError",
    "PipelineStepError",
    "PipelineValidationError",
    "StateConflictError",
    "StateNotStorableError",
    "WorkflowCompensationError",
    "WorkflowError",
    "WorkflowNotFoundError",
    "WorkflowStateError",
    "WorkflowStepError",
    "WorkflowTimeoutError",
    "WorkflowVersionMismatchError",
]


class WorkflowStateError(WorkflowError):
    """A run is not where it must be for what was asked, or its state was misused."""

    code = "LEX_ERR_WF_005"


class WorkflowStepError(WorkflowError):
    """A step of a workflow failed for a reason of its own."""

    code = "LEX_ERR_WF_006"

    def __init__(self, step_name: str, reason: str, **kwargs: Any) -> None:
        super().__init__(f"step {step_name!r}: {reason}", step_name, **kwargs)
        self.reason = reason


class WorkflowTimeoutError(WorkflowError, TimeoutError):
    """A workflow or a step of it took longer than allowed."""

    code = "LEX_ERR_WF_007"


class WorkflowCompensationError(WorkflowError):
    """What was done could not be undone."""

    code = "LEX_ERR_WF_008"


class WorkflowVersionMismatchError(WorkflowError):
    """A stored run belongs to another version of the definition."""

    code = "LEX_ERR_WF_010"

    def __init__(
        self, workflow_name: str, expected_version: int, actual_version: int, **kwargs: Any
    ) -> None:
        kwargs.setdefault(
            "hint", f"finish it with version {actual_version} of the definition, or start anew"
        )
        super().__init__(
            f"the run belongs to version {actual_version} of {workflow_name!r}, "
            f"this is version {expected_version}",
            **kwargs,
        )
        self.workflow_name = workflow_name
        self.expected_version = expected_version
        self.actual_version = actual_version


class GraphExecutionError(LexigramError):
    """A run of a graph ended without reaching its end; says where, why and with which state."""

    code = "LEX_ERR_WF_011"

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        state: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(message, **kwargs)
        self.node = node
        # as it was before the step that failed; finished nodes of that step are not in it
        self.state: dict[str, Any] = dict(state or {})
        self.run_id = run_id


class NodeExecutionError(GraphExecutionError):
    """A node raised, or took longer than ``node_timeout``; ``cause`` is what it raised."""

    code = "LEX_ERR_WF_012"


class CycleDetectedError(GraphExecutionError):
    """The nodes of a loop ran more often than ``max_iterations`` allows."""

    code = "LEX_ERR_WF_013"

    def __init__(self, iterations: int, *, node: str | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "check what ends the loop, or raise GraphConfig.max_iterations")
        super().__init__(
            f"the loop through node {node!r} did not end within {iterations} node runs",
            node=node,
            **kwargs,
        )
        self.iterations = iterations


class GraphTimeoutError(GraphExecutionError, TimeoutError):
    """The run took longer than ``total_timeout``."""

    code = "LEX_ERR_WF_014"

    def __init__(self, timeout: float, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "make it quicker, or raise GraphConfig.total_timeout")
        super().__init__(f"the graph did not end within {timeout:g} s", **kwargs)
        self.timeout = timeout


@frozen
class GraphProblem:
    """One thing that is wrong with a definition, and what to do about it."""

    text: str
    fix: str


class GraphValidationError(LexigramError, ValueError):
    """A definition cannot be run; ``problems`` holds everything that is wrong with it."""

    code = "LEX_ERR_WF_015"
    is_retryable = False

    def __init__(
        self, message: str, *, problems: Sequence[GraphProblem] = (), **kwargs: Any
    ) -> None:
        lines = [f"{problem.text}\n      → {problem.fix}" for problem in problems]
        super().__init__("\n    ".join([message, *lines]), **kwargs)
        self.problems = tuple(problems)


class PipelineValidationError(GraphValidationError):
    """A pipeline cannot be run; ``problems`` holds everything that is wrong with it."""

    code = "LEX_ERR_PIPE_003"


class HumanInputRequiredError(LexigramError):
    """The run is paused and stored until a person answers: a signal, not a failure.

    Answer with ``engine.resume(error.run_id, response)``, in this process or another.
    A node may raise it to pause; what it gives as ``remember`` comes back to it at the next try
    in ``state["_pause"]``, and ``timeout`` says after how many seconds to try without an answer;
    ``due_at`` is that moment, in seconds since 1970, of a run that waits.
    """

    code = "LEX_ERR_WF_016"

    def __init__(
        self,
        prompt: str,
        *,
        node: str | None = None,
        checkpoint_id: str | None = None,
        state: Mapping[str, Any] | None = None,
        remember: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        due_at: float | None = None,
        **kwargs: Any,
    ) -> None:
        if timeout is not None:
            check_time_limit("timeout", timeout)
        kwargs.setdefault("hint", "answer with engine.resume(run_id, response)")
        super().__init__(prompt, **kwargs)
        self.prompt = prompt
        self.node = node
        self.checkpoint_id = checkpoint_id
        self.state: dict[str, Any] = dict(state or {})
        self.remember: dict[str, Any] = dict(remember or {})
        self.timeout = None if timeout == inf else timeout
        self.due_at = due_at

    @property
    def run_id(self) -> str | None:
        """The run that waits; the same as ``checkpoint_id``."""
        return self.checkpoint_id

    def due(self, now: float) -> float | None:
        """When to try without an answer; None waits for ever."""
        return self.due_at if self.timeout is None else now + self.timeout


class StateConflictError(GraphExecutionError):
    """Nodes that ran side by side wrote one key, and no reducer says what that means."""

    code = "LEX_ERR_WF_111"

    def __init__(self, key: str, nodes: Sequence[str], **kwargs: Any) -> None:
        kwargs.setdefault("hint", f'declare builder.reduce("{key}", "append"), merge, max or yours')
        super().__init__(
            f"nodes {', '.join(map(repr, nodes))} wrote {key!r} in the same step",
            node=nodes[-1],
            **kwargs,
        )
        self.key = key
        self.nodes = tuple(nodes)


class StateNotStorableError(GraphExecutionError):
    """A value in the state cannot be kept by a checkpoint."""

    code = "LEX_ERR_WF_112"


class GraphCancelledError(GraphExecutionError):
    """``cancel(run_id)`` was called for the run."""

    code = "LEX_ERR_WF_113"
