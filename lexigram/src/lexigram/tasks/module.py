"""Jobs as a module: ``TasksModule.configure(...)`` once at the root, ``scope(...)`` per feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from attrs import evolve

from lexigram.contracts.infra.tasks.protocols import (
    DLQProtocol,
    IdempotencyManagerProtocol,
    JobControlProtocol,
    JobLeasingProtocol,
    ProgressTrackerProtocol,
    TaskExecutorProtocol,
    TaskManagerProtocol,
    TaskQueueProtocol,
    TaskWorkerProtocol,
)
from lexigram.di import DynamicModule, Module, Named, module
from lexigram.tasks._pools import WorkerPools
from lexigram.tasks.config import TasksConfig
from lexigram.tasks.context import JobContext
from lexigram.tasks.dead_letters import JobDeadLetters
from lexigram.tasks.executor import TaskExecutor
from lexigram.tasks.idempotency import IdempotencyManager
from lexigram.tasks.jobs import Jobs
from lexigram.tasks.manager import TaskManager
from lexigram.tasks.progress import ProgressTracker
from lexigram.tasks.provider import WORKER_CLASS, JobHandlersProvider, TasksProvider
from lexigram.tasks.queue import TaskQueue

_EXPORTS = (
    TasksConfig,
    TasksProvider,
    Jobs,
    JobContext,
    TaskQueue,
    TaskExecutor,
    TaskManager,
    WorkerPools,
    ProgressTracker,
    IdempotencyManager,
    JobDeadLetters,
    TaskQueueProtocol,
    JobControlProtocol,
    JobLeasingProtocol,
    TaskExecutorProtocol,
    TaskManagerProtocol,
    TaskWorkerProtocol,
    DLQProtocol,
    Annotated[DLQProtocol, Named("jobs")],
    IdempotencyManagerProtocol,
    ProgressTrackerProtocol,
    WORKER_CLASS,
)


@module(providers=[TasksProvider], exports=_EXPORTS, is_global=True)
class TasksModule(Module):
    """Jobs in the application's database, or in memory; the bare class reads ``tasks``."""

    @classmethod
    def configure(
        cls, config: TasksConfig | None = None, *, handlers: Sequence[Any] = ()
    ) -> DynamicModule:
        """With an explicit configuration, or section ``tasks`` when None."""
        return _dynamic(cls, TasksProvider(config, handlers))

    @classmethod
    def stub(
        cls, config: TasksConfig | None = None, *, handlers: Sequence[Any] = ()
    ) -> DynamicModule:
        """For tests: in memory, and nothing runs by itself.

        ``await container.get(WorkerPools).drain()`` does the jobs that wait.
        """
        settings = evolve(config or TasksConfig(), backend="memory", workers=False)
        return _dynamic(cls, TasksProvider(settings, handlers))

    @classmethod
    def scope(
        cls, *handlers: Any, exports: Sequence[Any] = (), imports: Sequence[Any] = ()
    ) -> DynamicModule:
        """Handlers of a feature: they take services that the importing module sees."""
        return super().scope(JobHandlersProvider(handlers), exports=exports, imports=imports)


def _dynamic(cls: type[TasksModule], provider: TasksProvider) -> DynamicModule:
    return DynamicModule(module=cls, providers=[provider], exports=_EXPORTS, is_global=True)
