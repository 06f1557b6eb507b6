"""What orchestration adds to the command line."""

from lexigram.workflow.cli.contributor import WorkflowCliContributor

__all__ = ["WorkflowCliContributor"]
