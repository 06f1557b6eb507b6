"""Orchestration as a module: ``WorkflowModule.configure()`` once at the root of an application."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lexigram.contracts.workflow.bulk import BulkCheckpointStoreProtocol
from lexigram.contracts.workflow.checkpoints import CheckpointStoreProtocol
from lexigram.contracts.workflow.content_checkpoint import ContentCheckpointStoreProtocol
from lexigram.contracts.workflow.durable import DurableRunsProtocol
from lexigram.contracts.workflow.protocols import (
    ExecutionProtocol,
    PipelineContextProtocol,
    PipelineProtocol,
    SagaStoreProtocol,
    StateMachineProtocol,
    StatePersistenceProtocol,
    WorkflowGraphProtocol,
)
from lexigram.di import DynamicModule, Module, module
from lexigram.workflow._declared import Declared
from lexigram.workflow.config import (
    BulkOperationConfig,
    ContentCheckpointConfig,
    GraphConfig,
    WorkflowConfig,
)
from lexigram.workflow.di.provider import WorkflowFeatureProvider, WorkflowProvider
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.fleet import DurableFleet
from lexigram.workflow.durable.provider import DurableProvider
from lexigram.workflow.pipeline.pipeline import Pipeline
from lexigram.workflow.workflows import Workflows

EXPORTS: tuple[Any, ...] = (
    *(PipelineProtocol, Pipeline, PipelineContextProtocol, WorkflowGraphProtocol),
    *(CheckpointStoreProtocol, SagaStoreProtocol, StatePersistenceProtocol),
    *(BulkCheckpointStoreProtocol, ContentCheckpointStoreProtocol, ExecutionProtocol),
    *(Workflows, WorkflowProvider, DurableFleet, DurableProvider, DurableRunsProtocol),
    *(WorkflowConfig, BulkOperationConfig, GraphConfig, ContentCheckpointConfig, DurableConfig),
)


@module(providers=[WorkflowProvider, DurableProvider], exports=EXPORTS, is_global=True)
class WorkflowModule(Module):
    """Binds orchestration; the bare class reads section ``workflow``."""

    @classmethod
    def configure(
        cls,
        config: BulkOperationConfig | None = None,
        saga_store: SagaStoreProtocol | None = None,
        content_checkpoint_store: ContentCheckpointStoreProtocol | None = None,
        content_checkpoint_config: ContentCheckpointConfig | None = None,
        state_machine: StateMachineProtocol | None = None,
        *,
        checkpoint_store: CheckpointStoreProtocol | None = None,
        workflows: Sequence[Declared] = (),
        step_handlers: Mapping[str, Callable[..., Any]] | None = None,
    ) -> DynamicModule:
        """Orchestration with an explicit configuration, or section ``workflow`` when None.

        ``workflows`` are pipelines, graphs, functions and sagas marked with ``@workflow``, and
        modules (or their names) to look through. Stores that are not given are those of the
        application's database, or in memory where it has none. ``step_handlers`` are handlers
        of durable runs by the names that definitions use beside dotted paths.
        """
        _demand(config, BulkOperationConfig, "config", "WorkflowConfig or BulkOperationConfig")
        _demand(
            content_checkpoint_config,
            ContentCheckpointConfig,
            "content_checkpoint_config",
            "ContentCheckpointConfig",
        )
        provider = WorkflowProvider(
            config,
            saga_store,
            state_machine,
            content_checkpoint_store=content_checkpoint_store,
            content_checkpoint_config=content_checkpoint_config,
            checkpoint_store=checkpoint_store,
            workflows=workflows,
        )
        exports = EXPORTS if state_machine is None else (*EXPORTS, StateMachineProtocol)
        providers = [provider, DurableProvider(step_handlers)]
        return DynamicModule(module=cls, providers=providers, exports=exports, is_global=True)

    @classmethod
    def stub(
        cls,
        config: BulkOperationConfig | None = None,
        *,
        workflows: Sequence[Declared] = (),
        step_handlers: Mapping[str, Callable[..., Any]] | None = None,
    ) -> DynamicModule:
        """Orchestration for tests: defaults, no file or variable is read."""
        given = WorkflowConfig() if config is None else config
        return cls.configure(given, workflows=workflows, step_handlers=step_handlers)

    @classmethod
    def scope(
        cls, *workflows: Any, exports: Sequence[Any] = (), imports: Sequence[Any] = ()
    ) -> DynamicModule:
        """Workflows of a feature: their services are what the importing module sees."""
        provider = WorkflowFeatureProvider(workflows)
        return super().scope(provider, exports=exports, imports=imports)


def _demand(given: Any, wanted: type, name: str, words: str) -> None:
    if given is not None and not isinstance(given, wanted):
        raise TypeError(f"{name} is a {type(given).__name__}; give a {words}")
