"""What a workflow is called, and in which version."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field, frozen


@frozen
class WorkflowDefinition:
    """A workflow as it is listed: its name, its steps or nodes, its version."""

    name: str
    steps: Sequence[str] = field(factory=list[str])
    version: int = 1
    # pipeline, graph or saga
    kind: str = "pipeline"
    description: str = ""
    # the event that starts it, by name
    on: str | None = None
    # seconds for a run; None: no limit of its own
    timeout: float | None = None
    # further attempts after a failure
    retries: int = 0
