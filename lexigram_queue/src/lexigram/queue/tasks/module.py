"""Jobs over the bus as a module: beside ``QueueModule`` and ``TasksModule``, once at the root."""

from __future__ import annotations

from typing import Annotated, Any

from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.queue import QueueProtocol
from lexigram.di import DynamicModule, Module, Named, Provider, ProviderPriority, module
from lexigram.queue.backends.redis.jobs import RedisJobs, RedisProgress, RedisSubmissions
from lexigram.queue.bus import BusQueue
from lexigram.queue.outbox.outbox import TransactionalOutbox
from lexigram.queue.tasks.config import BusJobsConfig
from lexigram.queue.tasks.store import BusJobs
from lexigram.sql.database import Database
from lexigram.tasks.idempotency import MemorySubmissions, SubmissionStore
from lexigram.tasks.progress import MemoryProgress, ProgressStore
from lexigram.tasks.store import JobStore
from lexigram.tasks.store_memory import MemoryStore
from lexigram.tasks.store_side import SqlProgress, SqlSubmissions
from lexigram.tasks.store_sql import SqlStore

EXPORTS = (BusJobsConfig, JobStore, ProgressStore, SubmissionStore)


class BusJobsProvider(Provider):
    """Binds the stores that ``TasksModule`` takes when its backend is ``auto``."""

    name = "queue_jobs"
    priority = ProviderPriority.INFRASTRUCTURE
    dependencies = ("queue",)
    optional_dependencies = ("sql",)
    config_key = "queue_jobs"
    config_model = BusJobsConfig

    config: BusJobsConfig

    def __init__(self, config: BusJobsConfig | None = None) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        self._jobs: JobStore | None = None
        self._progress: ProgressStore | None = None
        self._submissions: SubmissionStore | None = None
        self._redis: RedisJobs | None = None

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind the stores; they are made at boot, when the bus is there."""
        container.singleton(BusJobsConfig, self.config)
        container.singleton(JobStore, factory=self._get_jobs)
        container.singleton(ProgressStore, factory=self._get_progress)
        container.singleton(SubmissionStore, factory=self._get_submissions)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Join the state and the driver of the chosen backend."""
        queue = await container.resolve(self._service_key(QueueProtocol))
        if not isinstance(queue, BusQueue):
            raise ConfigurationError(
                f"jobs need a driver of the bus; backend {self.config.backend!r} is a "
                f"{type(queue).__name__}",
                hint="queue_jobs.backend names one of queue.backends that has a driver",
            )
        outbox = await container.resolve(self._service_key(TransactionalOutbox))
        state = self._state(await container.resolve_optional(Database))
        self._jobs = BusJobs(
            state, queue.driver, topic=self.config.topic, poll=self.config.poll, outbox=outbox
        )

    async def shutdown(self) -> None:
        """Close what is ours: the connections to the state in Redis."""
        if self._redis is not None:
            await self._redis.aclose()

    def _service_key(self, service: Any) -> Any:
        name = self.config.backend
        return service if name is None else Annotated[service, Named(name)]

    def _state(self, database: Database | None) -> JobStore:
        config = self.config
        if config.redis_url is not None and config.state in ("auto", "redis"):
            self._redis = RedisJobs(config.redis_url, prefix=config.prefix, poll=config.poll)
            self._progress = RedisProgress(self._redis)
            self._submissions = RedisSubmissions(self._redis)
            return self._redis
        if config.state == "memory":
            self._progress, self._submissions = MemoryProgress(), MemorySubmissions()
            return MemoryStore(poll=config.poll)
        if database is None:
            raise ConfigurationError(
                "jobs over the bus need a place for their state, and there is none",
                hint="add SqlModule.configure(...), or set queue_jobs.redis_url",
            )
        self._progress = SqlProgress(database, poll=config.poll)
        self._submissions = SqlSubmissions(database)
        return SqlStore(database, poll=config.poll)

    def _get_jobs(self) -> JobStore:
        assert self._jobs is not None, "asked for after boot"
        return self._jobs

    def _get_progress(self) -> ProgressStore:
        assert self._progress is not None, "asked for after boot"
        return self._progress

    def _get_submissions(self) -> SubmissionStore:
        assert self._submissions is not None, "asked for after boot"
        return self._submissions


@module(providers=[BusJobsProvider], exports=EXPORTS, is_global=True)
class BusJobsModule(Module):
    """Puts the jobs of ``TasksModule`` on the bus; the bare class reads ``queue_jobs``."""

    @classmethod
    def configure(cls, config: BusJobsConfig | None = None) -> DynamicModule:
        """With an explicit configuration, or section ``queue_jobs`` when None."""
        return DynamicModule(
            module=cls, providers=[BusJobsProvider(config)], exports=EXPORTS, is_global=True
        )

    @classmethod
    def stub(cls, config: BusJobsConfig | None = None) -> DynamicModule:
        """For tests: the state in memory, the broker as ``QueueModule.stub()`` has it."""
        return cls.configure(config or BusJobsConfig(state="memory"))
