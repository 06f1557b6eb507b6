"""Running workflows with retries, and looking at how runs went."""

from lexigram.workflow.execution.checkpoint import WorkflowCheckpoint
from lexigram.workflow.execution.history import ExecutionHistory
from lexigram.workflow.execution.runner import WorkflowRunner

__all__ = ["ExecutionHistory", "WorkflowCheckpoint", "WorkflowRunner"]
