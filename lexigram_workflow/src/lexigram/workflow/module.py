"""Orchestration as a module: ``WorkflowModule.configure()`` once at the root of an application."""

from __future__ import annotations

from lexigram.di import DynamicModule, Module, module
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.di.provider import WorkflowProvider


@module(providers=[WorkflowProvider], exports=[WorkflowConfig])
class WorkflowModule(Module):
    """Binds the configuration of orchestration; the bare class reads section ``workflow``."""

    @classmethod
    def configure(cls, config: WorkflowConfig | None = None) -> DynamicModule:
        """Orchestration with an explicit configuration, or section ``workflow`` when None."""
        return DynamicModule(
            module=cls, providers=[WorkflowProvider(config)], exports=[WorkflowConfig]
        )

    @classmethod
    def stub(cls, config: WorkflowConfig | None = None) -> DynamicModule:
        """Orchestration for tests: defaults, no file or variable is read."""
        return cls.configure(WorkflowConfig() if config is None else config)
