"""Sagas: steps that are undone when a later one fails."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.contracts.workflow.protocols import SagaStoreProtocol
    from lexigram.contracts.workflow.types import SagaState, SagaStep
    from lexigram.workflow.saga.base import AbstractSaga
    from lexigram.workflow.saga.batch import SagaBatchProcessor, SagaBatchReport, SagaOutcome
    from lexigram.workflow.saga.content_addressed import (
        ContentAddressedSaga,
        ContentAddressedStage,
    )
    from lexigram.workflow.saga.contexts import (
        SagaCompensationCompletedHook,
        SagaCompensationContext,
        SagaCompensationTriggeredHook,
        SagaStepContext,
        SagaStepExecutedHook,
        SagaStepFailedHook,
    )
    from lexigram.workflow.saga.errors import (
        SagaBusyError,
        SagaDefinitionError,
        SagaError,
        SagaStepError,
        SagaVersionMismatchError,
    )
    from lexigram.workflow.saga.memory import InMemorySagaStore
    from lexigram.workflow.saga.steps import saga_step
    from lexigram.workflow.saga.store_sql import SqlSagaStore
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.contracts.workflow.protocols": ["SagaStoreProtocol"],
            "lexigram.contracts.workflow.types": ["SagaState", "SagaStep"],
            "lexigram.workflow.saga.base": ["AbstractSaga"],
            "lexigram.workflow.saga.batch": [
                "SagaBatchProcessor",
                "SagaBatchReport",
                "SagaOutcome",
            ],
            "lexigram.workflow.saga.content_addressed": [
                "ContentAddressedSaga",
                "ContentAddressedStage",
            ],
            "lexigram.workflow.saga.contexts": [
                "SagaCompensationCompletedHook",
                "SagaCompensationContext",
                "SagaCompensationTriggeredHook",
                "SagaStepContext",
                "SagaStepExecutedHook",
                "SagaStepFailedHook",
            ],
            "lexigram.workflow.saga.errors": [
                "SagaBusyError",
                "SagaDefinitionError",
                "SagaError",
                "SagaStepError",
                "SagaVersionMismatchError",
            ],
            "lexigram.workflow.saga.memory": ["InMemorySagaStore"],
            "lexigram.workflow.saga.steps": ["saga_step"],
            "lexigram.workflow.saga.store_sql": ["SqlSagaStore"],
        },
    )

__all__ = [
    "AbstractSaga",
    "ContentAddressedSaga",
    "ContentAddressedStage",
    "InMemorySagaStore",
    "SagaBatchProcessor",
    "SagaBatchReport",
    "SagaBusyError",
    "SagaCompensationCompletedHook",
    "SagaCompensationContext",
    "SagaCompensationTriggeredHook",
    "SagaDefinitionError",
    "SagaError",
    "SagaOutcome",
    "SagaState",
    "SagaStep",
    "SagaStepContext",
    "SagaStepError",
    "SagaStepExecutedHook",
    "SagaStepFailedHook",
    "SagaStoreProtocol",
    "SagaVersionMismatchError",
    "SqlSagaStore",
    "saga_step",
]
