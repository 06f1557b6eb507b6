"""Tells the event bus and the hooks how runs go, if anybody listens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from lexigram.contracts.core.result import Err
from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events.protocols import EventBusProtocol
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

_log = logging.getLogger(__name__)


class Announcer:
    """Speaks for one kind of workflow; ``kind`` is its type in hooks, such as "graph"."""

    def __init__(
        self,
        name: str,
        kind: str,
        events: EventBusProtocol | None = None,
        hooks: HookRegistry | None = None,
    ) -> None:
        self._name = name
        self._kind = kind
        self._events = events
        self._hooks = hooks
        self.is_silent = events is None and hooks is None

    async def started(self, run_id: str) -> None:
        """A run began."""
        await self._publish(
            WorkflowStartedEvent,
            lambda: WorkflowStartedEvent(workflow_id=run_id, workflow_name=self._name),
        )
        await self._emit(
            WorkflowStartedHook,
            lambda: WorkflowStartedHook(workflow_id=run_id, workflow_type=self._kind),
        )

    async def moved(self, run_id: str, old: str, new: str) -> None:
        """A run went from one status to another."""
        await self._emit(
            WorkflowStateTransitionedHook,
            lambda: WorkflowStateTransitionedHook(workflow_id=run_id, from_state=old, to_state=new),
        )

    async def completed(self, run_id: str) -> None:
        """A run reached its end."""
        await self._publish(
            WorkflowCompletedEvent,
            lambda: WorkflowCompletedEvent(workflow_id=run_id, workflow_name=self._name),
        )
        await self._ended(run_id, succeeded=True)

    async def failed(self, run_id: str, error: BaseException) -> None:
        """A run ended without reaching its end."""
        await self._publish(
            WorkflowFailedEvent,
            lambda: WorkflowFailedEvent(
                workflow_id=run_id, workflow_name=self._name, error=str(error)
            ),
        )
        await self._ended(run_id, succeeded=False)

    async def _ended(self, run_id: str, *, succeeded: bool) -> None:
        await self._emit(
            WorkflowCompletedHook,
            lambda: WorkflowCompletedHook(
                workflow_id=run_id, workflow_type=self._kind, succeeded=succeeded
            ),
        )

    async def _publish(self, kind: type[DomainEvent], build: Callable[[], DomainEvent]) -> None:
        if self._events is None or not self._events.has_subscribers(kind):
            return
        told = await self._events.publish(build())
        if isinstance(told, Err):
            # The run must not fail because somebody who watches it did.
            _log.warning("%s", told.error)

    async def _emit(self, kind: type[Any], build: Callable[[], Any]) -> None:
        if self._hooks is not None and self._hooks.wants(kind):
            await self._hooks.emit(build())
