"""The AI workers as a module: ``WorkersModule.configure()`` once at the root of an application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from attrs import evolve

from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache
from lexigram.ai.workers.config import WorkersConfig
from lexigram.ai.workers.di.provider import (
    _WORKER_TYPES,  # pyright: ignore[reportPrivateUsage]  # an old public name
    WORKER_CLASS,
    WORKERS_NAME,
    WorkersProvider,
)
from lexigram.ai.workers.maintenance.aged_cache import AgedCache
from lexigram.ai.workers.statistics import IngestionStatistics
from lexigram.ai.workers.supervision import Supervisor, WorkerProtocol
from lexigram.ai.workers.vectors.choose import VectorStores
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.data.vector import VectorStoreProtocol
from lexigram.contracts.infra.tasks.protocols import TaskWorkerProtocol
from lexigram.di import DynamicModule, Module, Named, module
from lexigram.processes import ProcessPool

_EXPORTS: tuple[Any, ...] = (
    WorkersConfig,
    *_WORKER_TYPES,
    Supervisor,
    TaskWorkerProtocol,
    Annotated[TaskWorkerProtocol, Named(WORKERS_NAME)],
    EmbeddingProviderProtocol,
    EmbeddingCache,
    IngestionStatistics,
    AgedCache,
    ProcessPool,
    VectorStores,
    VectorStoreProtocol,
    WORKER_CLASS,
)


@module(providers=[WorkersProvider], exports=_EXPORTS, is_global=True)
class WorkersModule(Module):
    """Embedding, ingestion, maintenance and dead letters; configured by section ``ai_workers``."""

    @classmethod
    def configure(
        cls,
        config: WorkersConfig | None = None,
        enable_scheduler: bool = True,
        *,
        worker_types: Sequence[type[WorkerProtocol]] = (),
        imports: Sequence[Any] = (),
    ) -> DynamicModule:
        """Configure the workers explicitly, or by section ``ai_workers`` if None.

        ``enable_scheduler=False``: maintenance tasks run only on demand. ``worker_types`` are
        additional workers under the same supervisor; ``imports`` are the modules that they need.
        """
        provider = WorkersProvider(config, enable_scheduler, worker_types=worker_types)
        return _dynamic(cls, provider, worker_types, imports)

    @classmethod
    def stub(
        cls,
        config: WorkersConfig | None = None,
        *,
        worker_types: Sequence[type[WorkerProtocol]] = (),
        imports: Sequence[Any] = (),
    ) -> DynamicModule:
        """Configure workers for tests: in memory, with hashing embeddings, not started.

        Every resolve creates a worker; ``await worker.drain()`` runs the pending jobs. With a
        ``config`` its embeddings and vector settings are used.
        """
        if config is None:
            plain = WorkersConfig()
            config = evolve(
                plain,
                embeddings=evolve(plain.embeddings, provider="hashing"),
                vectors=evolve(plain.vectors, provider="memory"),
            )
        provider = WorkersProvider(config, False, worker_types=worker_types, stub=True)
        return _dynamic(cls, provider, worker_types, imports)


def _dynamic(
    cls: type[WorkersModule],
    provider: WorkersProvider,
    worker_types: Sequence[type[WorkerProtocol]],
    imports: Sequence[Any],
) -> DynamicModule:
    return DynamicModule(
        module=cls,
        providers=[provider],
        imports=imports,
        exports=(*_EXPORTS, *worker_types),
        is_global=True,
    )
