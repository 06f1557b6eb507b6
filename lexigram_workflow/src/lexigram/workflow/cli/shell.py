"""What the interactive shell knows of workflows."""

from __future__ import annotations

from lexigram.contracts.core.di import ContainerResolverProtocol
from lexigram.workflow.workflows import Workflows


async def provide_workflow_engine(container: ContainerResolverProtocol) -> Workflows | None:
    """The workflows of the application; None where it has no WorkflowModule."""
    return await container.resolve_optional(Workflows)
