"""Roles in a workflow: who steps, who orders, who remembers, who approves."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lexigram.contracts.workflow.types import SagaState

if TYPE_CHECKING:
    from lexigram.contracts.core.result import Result
    from lexigram.contracts.workflow.types import StateTransitionRecord

__all__ = [
    "ApprovalProtocol",
    "BulkProcessorProtocol",
    "ExecutionProtocol",
    "PipelineContextProtocol",
    "PipelineProtocol",
    "PipelineStepProtocol",
    "SagaProtocol",
    "SagaState",
    "SagaStoreProtocol",
    "StateMachineProtocol",
    "StatePersistenceProtocol",
    "WorkflowGraphProtocol",
    "WorkflowNodeProtocol",
]


@runtime_checkable
class PipelineContextProtocol(Protocol):
    """What the steps of one pipeline run share; belongs to that run alone."""

    @property
    def metadata(self) -> MutableMapping[str, Any]:
        """Free facts about the run."""
        ...

    def get_result(self, step_name: str) -> Any:
        """What the step returned; None when it has not (yet)."""
        ...

    def set_result(self, step_name: str, value: Any) -> None:
        """Keep the result of a step; a second call replaces it."""
        ...


@runtime_checkable
class PipelineStepProtocol(Protocol):
    """One step of a pipeline."""

    @property
    def name(self) -> str:
        """Unique within the pipeline."""
        ...

    async def execute(self, context: Any) -> Result[Any, Exception]:
        """Do the work. An exception counts as Err. May run again after a crash or a retry."""
        ...


@runtime_checkable
class PipelineProtocol(Protocol):
    """Steps in the order of their dependencies."""

    def add_step(self, step: Any) -> None:
        """Add a step. Raises ValueError for a name that is taken or a dependency unknown."""
        ...

    async def execute(self, initial_context: Any = None) -> Result[Any, Exception]:
        """Run the steps; Ok of the context, or Err naming the step that failed.

        Steps run one after the other unless the pipeline says otherwise. Each call is a run
        of its own; two at once do not see each other.
        """
        ...


@runtime_checkable
class BulkProcessorProtocol(Protocol):
    """Works on many items at once."""

    async def process_batch(self, items: list[Any]) -> list[Any]:
        """One result per item, in the order of the items. May be called again for a batch."""
        ...


@runtime_checkable
class SagaProtocol(Protocol):
    """A process that reacts to events with commands."""

    async def handle(self, event: Any) -> list[Any]:
        """React to an event; the commands to send. The same event again gives no new ones."""
        ...


@runtime_checkable
class SagaStoreProtocol(Protocol):
    """Remembers where sagas are. ``data`` must be JSON-ready.

    A save that returned survives a crash as far as the store does. The last of two concurrent
    saves wins. Methods raise when the store fails; the saga then stops.
    """

    async def save(self, saga_id: str, state: SagaState, data: dict[str, Any]) -> None:
        """Keep state and data together; a second call replaces both."""
        ...

    async def load(self, saga_id: str) -> tuple[SagaState, dict[str, Any]] | None:
        """What was saved last, or None."""
        ...

    async def delete(self, saga_id: str) -> None:
        """Forget the saga; unknown is fine."""
        ...


@runtime_checkable
class StateMachineProtocol(Protocol):
    """A finite state machine."""

    @property
    def current_state(self) -> str:
        """The state as this object knows it."""
        ...

    @property
    def version(self) -> int:
        """How many transitions led here; 0 at the start."""
        ...

    def can_transition(self, event: str) -> bool:
        """True when the state has a transition for the event; guards are not asked."""
        ...

    async def transition(self, event: str) -> str:
        """Move and return the new state.

        Raises when there is no transition, a guard refuses, or another process moved the
        machine meanwhile; the state is then as before. Sending an event twice moves twice.
        """
        ...

    async def recover(self, machine_id: str | None = None) -> str:
        """Take over the stored state and return it; the initial one when none is stored."""
        ...


@runtime_checkable
class StatePersistenceProtocol(Protocol):
    """Keeps the transitions of state machines, append only."""

    async def append_transition(
        self, machine_id: str, from_state: str, event: str, to_state: str, expected_version: int
    ) -> int:
        """Append as version ``expected_version + 1`` and return it.

        Raises StateVersionConflictError, a RuntimeError, when the machine is at another
        version: of two concurrent callers one wins.
        """
        ...

    async def load_transitions(self, machine_id: str) -> Sequence[StateTransitionRecord]:
        """All transitions, oldest first; empty when unknown."""
        ...

    async def get_current_version(self, machine_id: str) -> int:
        """The latest version; 0 when unknown."""
        ...


@runtime_checkable
class WorkflowNodeProtocol(Protocol):
    """One node of a graph."""

    @property
    def name(self) -> str:
        """Unique within the graph."""
        ...

    async def execute(self, state: dict[str, Any]) -> dict[str, Any]:
        """Read the state and return what changes in it; an exception fails the run.

        The state is shared: return what changes instead of changing it. May run again after a
        crash or a retry.
        """
        ...


@runtime_checkable
class WorkflowGraphProtocol(Protocol):
    """Nodes and edges being put together. Adding returns the graph itself or nothing."""

    def add_node(self, node_id: str, node: Any, /) -> object:
        """Add a node. Raises ValueError for an id that is taken."""
        ...

    def add_edge(self, from_id: str, to_id: str, /) -> object:
        """Connect two nodes, which may be added later."""
        ...

    def get_node(self, node_id: str, /) -> WorkflowNodeProtocol:
        """The node. Raises KeyError when unknown."""
        ...

    def topological_order(self) -> list[str]:
        """Ids so that edges point forward. Raises ValueError for a graph with a cycle."""
        ...


@runtime_checkable
class ExecutionProtocol(Protocol):
    """Starts, continues and stops executions."""

    async def execute(self, workflow_id: str, context: Any, /) -> Any:
        """Run to the end or to a pause. Each call is an execution of its own."""
        ...

    async def resume(self, execution_id: str, result: Any, /) -> Any:
        """Continue at the pause with the answer. Raises when it is not paused (any more)."""
        ...

    async def cancel(self, execution_id: str, /) -> object:
        """Stop it; what is done stays done. Ended or unknown: nothing."""
        ...


@runtime_checkable
class ApprovalProtocol(Protocol):
    """Asks a person for approval."""

    async def request_approval(
        self, workflow_id: str, step_id: str, context: Mapping[str, Any]
    ) -> bool:
        """Ask and wait for the answer. Asking again for the same step may ask them again."""
        ...

    async def cancel_approval(self, approval_id: str) -> None:
        """Withdraw the question; answered or unknown is fine."""
        ...
