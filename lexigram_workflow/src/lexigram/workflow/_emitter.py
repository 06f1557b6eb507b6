"""Reports how runs of workflows go: events and hooks."""

from __future__ import annotations

from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.events import EventEmitter
from lexigram.hooks import HookRegistry
from lexigram.workflow.events import (
    WorkflowCompletedEvent,
    WorkflowFailedEvent,
    WorkflowStartedEvent,
)
from lexigram.workflow.hooks import (
    WorkflowCompletedHook,
    WorkflowStartedHook,
    WorkflowStateTransitionedHook,
)


class WorkflowEmitter(EventEmitter):
    """The emitter of one workflow; ``kind`` is its type in hooks, such as "graph"."""

    def __init__(
        self,
        name: str,
        kind: str,
        events: EventBusProtocol | None = None,
        hooks: HookRegistry | None = None,
    ) -> None:
        super().__init__(events=events, hooks=hooks)
        self._name = name
        self._kind = kind
        self.is_silent = events is None and hooks is None

    async def emit_started(self, run_id: str) -> None:
        """A run began."""
        await self.publish(
            WorkflowStartedEvent,
            lambda: WorkflowStartedEvent(workflow_id=run_id, workflow_name=self._name),
        )
        await self.emit(
            WorkflowStartedHook,
            lambda: WorkflowStartedHook(workflow_id=run_id, workflow_type=self._kind),
        )

    async def emit_moved(self, run_id: str, old: str, new: str) -> None:
        """A run went from one status to another."""
        await self.emit(
            WorkflowStateTransitionedHook,
            lambda: WorkflowStateTransitionedHook(workflow_id=run_id, from_state=old, to_state=new),
        )

    async def emit_completed(self, run_id: str) -> None:
        """A run reached its end."""
        await self.publish(
            WorkflowCompletedEvent,
            lambda: WorkflowCompletedEvent(workflow_id=run_id, workflow_name=self._name),
        )
        await self._emit_end(run_id, succeeded=True)

    async def emit_failed(self, run_id: str, error: BaseException) -> None:
        """A run ended without reaching its end."""
        await self.publish(
            WorkflowFailedEvent,
            lambda: WorkflowFailedEvent(
                workflow_id=run_id, workflow_name=self._name, error=str(error)
            ),
        )
        await self._emit_end(run_id, succeeded=False)

    async def _emit_end(self, run_id: str, *, succeeded: bool) -> None:
        await self.emit(
            WorkflowCompletedHook,
            lambda: WorkflowCompletedHook(
                workflow_id=run_id, workflow_type=self._kind, succeeded=succeeded
            ),
        )
