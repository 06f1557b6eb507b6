"""Where an application can listen in on workflows: ``hooks.on(WorkflowStartedHook, handler)``."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class WorkflowStartedHook:
    """A run began."""

    workflow_id: str
    workflow_type: str


@frozen(kw_only=True)
class WorkflowStateTransitionedHook:
    """A run went from one status to another: running, paused, completed, failed, cancelled."""

    workflow_id: str
    from_state: str
    to_state: str


@frozen(kw_only=True)
class WorkflowCompletedHook:
    """A run ended."""

    workflow_id: str
    workflow_type: str
    succeeded: bool
