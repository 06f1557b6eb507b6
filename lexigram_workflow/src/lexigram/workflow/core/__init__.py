"""Definitions, instances and transform pipes."""

from lexigram.workflow.core.definition import WorkflowDefinition
from lexigram.workflow.core.instance import WorkflowInstance
from lexigram.workflow.core.pipe import TransformPipe

__all__ = ["TransformPipe", "WorkflowDefinition", "WorkflowInstance"]
