"""The provider of orchestration."""

from lexigram.workflow.di.provider import WorkflowProvider

__all__ = ["WorkflowProvider"]
