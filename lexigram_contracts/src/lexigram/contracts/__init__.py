"""The vocabulary of Lexigram: protocols, value types and errors, one folder per domain.

The names used most are here too and load on first use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.contracts.core.errors import (
        ConfigurationError,
        DomainError,
        InfrastructureError,
        LexigramError,
        NotFoundError,
    )
    from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
    from lexigram.contracts.core.hooks import HookRegistryProtocol
    from lexigram.contracts.core.provider import ProviderPriority
    from lexigram.contracts.core.result import Err, Ok, Result
    from lexigram.contracts.data.sql.database import DatabaseProviderProtocol
    from lexigram.contracts.data.vector.protocols import VectorStoreProtocol
    from lexigram.contracts.domain.events import DomainEvent
    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.infra.cache.protocols import CacheBackendProtocol
    from lexigram.contracts.infra.tasks.protocols import (
        JobProtocol,
        TaskQueueProtocol,
        TaskWorkerProtocol,
    )
    from lexigram.contracts.observability.metrics import MetricsProtocol
    from lexigram.contracts.observability.tracing import TracerProtocol
    from lexigram.contracts.queue.protocols import QueueProtocol
    from lexigram.contracts.queue.types import BusMessage
    from lexigram.contracts.workflow.durable import DurableRunsProtocol
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.contracts.core.errors": [
                "ConfigurationError",
                "DomainError",
                "InfrastructureError",
                "LexigramError",
                "NotFoundError",
            ],
            "lexigram.contracts.core.health": ["HealthCheckResult", "HealthStatus"],
            "lexigram.contracts.core.hooks": ["HookRegistryProtocol"],
            "lexigram.contracts.core.provider": ["ProviderPriority"],
            "lexigram.contracts.core.result": ["Err", "Ok", "Result"],
            "lexigram.contracts.data.sql.database": ["DatabaseProviderProtocol"],
            "lexigram.contracts.data.vector.protocols": ["VectorStoreProtocol"],
            "lexigram.contracts.domain.events": ["DomainEvent"],
            "lexigram.contracts.events.protocols": ["EventBusProtocol"],
            "lexigram.contracts.infra.cache.protocols": ["CacheBackendProtocol"],
            "lexigram.contracts.infra.tasks.protocols": [
                "JobProtocol",
                "TaskQueueProtocol",
                "TaskWorkerProtocol",
            ],
            "lexigram.contracts.observability.metrics": ["MetricsProtocol"],
            "lexigram.contracts.observability.tracing": ["TracerProtocol"],
            "lexigram.contracts.queue.protocols": ["QueueProtocol"],
            "lexigram.contracts.queue.types": ["BusMessage"],
            "lexigram.contracts.workflow.durable": ["DurableRunsProtocol"],
        },
    )

__all__ = [
    "BusMessage",
    "CacheBackendProtocol",
    "ConfigurationError",
    "DatabaseProviderProtocol",
    "DomainError",
    "DomainEvent",
    "DurableRunsProtocol",
    "Err",
    "EventBusProtocol",
    "HealthCheckResult",
    "HealthStatus",
    "HookRegistryProtocol",
    "InfrastructureError",
    "JobProtocol",
    "LexigramError",
    "MetricsProtocol",
    "NotFoundError",
    "Ok",
    "ProviderPriority",
    "QueueProtocol",
    "Result",
    "TaskQueueProtocol",
    "TaskWorkerProtocol",
    "TracerProtocol",
    "VectorStoreProtocol",
]
