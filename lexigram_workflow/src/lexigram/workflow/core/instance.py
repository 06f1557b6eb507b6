"""One run of a definition, stamped with its version."""

from __future__ import annotations

from typing import Self
from uuid import uuid4

from attrs import define, field

from lexigram.workflow.core.definition import WorkflowDefinition
from lexigram.workflow.errors import WorkflowVersionMismatchError


@define
class WorkflowInstance:
    """Remembers which definition, in which version, a run belongs to."""

    instance_id: str = field(factory=lambda: str(uuid4()))
    workflow_name: str = ""
    definition_version: int = 1

    @classmethod
    def create(cls, definition: WorkflowDefinition) -> Self:
        """A new instance of a definition as it is now."""
        return cls(workflow_name=definition.name, definition_version=definition.version)

    def validate_definition_version(self, definition: WorkflowDefinition) -> None:
        """Raise WorkflowVersionMismatchError when the definition has another version by now."""
        if definition.version != self.definition_version:
            raise WorkflowVersionMismatchError(
                self.workflow_name, definition.version, self.definition_version
            )
