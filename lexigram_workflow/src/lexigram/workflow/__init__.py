"""Lexigram orchestration: its module and its configuration."""

from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.di.provider import WorkflowProvider
from lexigram.workflow.module import WorkflowModule

__all__ = ["WorkflowConfig", "WorkflowModule", "WorkflowProvider"]
