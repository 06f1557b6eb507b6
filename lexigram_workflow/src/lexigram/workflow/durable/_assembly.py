"""Assemble durable runs from the services of an application; loads SQLAlchemy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from lexigram.contracts.data.blobs import BlobStoreProtocol
from lexigram.contracts.infra.tasks.protocols import ProgressTrackerProtocol
from lexigram.sql.database import Database
from lexigram.workflow.durable.bus_events import DurableEventEmitter
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.definitions.catalog import HandlerCatalog
from lexigram.workflow.durable.definitions.registry import (
    DefinitionFolders,
    DefinitionRegistry,
    IsUsed,
)
from lexigram.workflow.durable.documents.artifacts import ArtifactFolders, Artifacts
from lexigram.workflow.durable.documents.documents import Documents
from lexigram.workflow.durable.documents.runs import DurableRuns
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.fleet import FleetParts
from lexigram.workflow.durable.following import Following
from lexigram.workflow.durable.orchestrated.runs import OrchestratedRuns, Orchestration
from lexigram.workflow.durable.plan import LifeCycleEvent
from lexigram.workflow.durable.questions import Questions
from lexigram.workflow.durable.store.overview import Overview
from lexigram.workflow.durable.store.records import GroupEvent, Terms
from lexigram.workflow.durable.store.sync_states import SyncStates
from lexigram.workflow.durable.worker.events import RunNotice
from lexigram.workflow.durable.worker.pools import Metrics
from lexigram.workflow.durable.worker.steps import Services, StepHandler
from lexigram.workflow.durable.worker.worker import Worker, WorkerConfig

# Longer than any event takes: a hook that hangs must not block the others forever.
_LISTENER_SECONDS = 600.0


@frozen(kw_only=True)
class Around:
    """The services of the application beside the database."""

    services: Services
    emitter: DurableEventEmitter
    blobs: BlobStoreProtocol | None = None
    metrics: Metrics | None = None
    progress: ProgressTrackerProtocol | None = None
    handlers: Mapping[str, Callable[..., Any]]
    # pipelines, graphs and sagas of the application, by name
    orchestrations: Callable[[str], Orchestration | None] | None = None
    # the names of those
    orchestration_names: Callable[[], Iterable[str]] = tuple
    # called when a worker is made
    worker_name: Callable[[], str | None]


def assemble(database: Database, config: DurableConfig, around: Around) -> FleetParts:
    """The parts; nothing is started or read."""
    terms = Terms(
        lease=config.checkin_timeout,
        ageing=config.ageing,
        tenant_gap=config.tenant_gap,
        max_lost=config.max_lost,
    )
    engine = DurableEngine(database, terms)
    overview = Overview(database)
    orchestrated = OrchestratedRuns(
        engine, find=around.orchestrations, known=around.orchestration_names
    )
    handlers = {**orchestrated.handlers, **around.handlers}
    definitions = definitions_of(config, handlers, around.services, overview.uses_params)
    documents = uploads = None
    if around.blobs is not None:
        artifacts = Artifacts(around.blobs, _folders(config))
        documents = Documents(database, artifacts, engine)
        allowed = [Path(folder) for folder in config.input_dirs]
        uploads = Documents(database, artifacts, engine, input_dirs=allowed)

    def make_worker(consumers: Mapping[str, int] | None) -> Worker:
        return Worker(
            WorkerConfig(
                consumers=dict(consumers or config.consumers),
                poll_interval=config.poll_interval,
                checkin_interval=config.checkin_interval,
                retention=config.retention,
                listener_timeout=_LISTENER_SECONDS,
            ),
            engine,
            definitions.handlers,
            services=around.services,
            documents=None if documents is None else documents.load,
            artifacts=None if documents is None else documents.artifacts,
            metrics=around.metrics,
            listeners=_listeners(around.emitter, documents),
            publish=_publisher(around.emitter),
            upkeep=None if documents is None else documents.sweep,
            progress=around.progress,
            name=around.worker_name(),
        )

    runs = None
    if documents is not None:
        runs = DurableRuns(
            engine,
            definitions,
            documents,
            make_worker=make_worker,
            stop_timeout=config.stop_timeout,
        )
    return FleetParts(
        engine=engine,
        definitions=definitions,
        overview=overview,
        make_worker=make_worker,
        documents=documents,
        runs=runs,
        uploads=uploads,
        orchestrated=orchestrated,
        following=Following(engine, make_worker=make_worker, stop_timeout=config.stop_timeout),
        questions=Questions(engine, orchestrated),
        sync_states=SyncStates(database),
    )


def definitions_of(
    config: DurableConfig,
    handlers: Mapping[str, Callable[..., Any]],
    services: Services,
    is_used: IsUsed | None = None,
) -> DefinitionRegistry:
    """The definitions of an application; their handlers are resolved from ``services``."""
    return DefinitionRegistry(
        HandlerCatalog(handlers, prefixes=config.handler_prefixes),
        DefinitionFolders(
            workflow_dir=Path(config.workflow_dir),
            param_dir=Path(config.param_dir),
            user_param_dir=Path(config.user_param_dir),
        ),
        default_workflow_id=config.default_workflow_id,
        default_param_id=config.default_param_id,
        lancedb_dir=config.lancedb_dir,
        is_used=is_used,
        check=lambda name, function: StepHandler(name, function, services),
    )


def _folders(config: DurableConfig) -> ArtifactFolders:
    return ArtifactFolders(
        doc=config.document_store_dir,
        parsed_md=config.parsed_markdown_store_dir,
        parsed_json=config.parsed_json_store_dir,
        chunks=config.chunks_store_dir,
        embeddings=config.embeddings_store_dir,
        rag=config.rag_store_dir,
        custom=config.custom_store_dir,
    )


def _listeners(
    emitter: DurableEventEmitter, documents: Documents | None
) -> Mapping[LifeCycleEvent, Any]:
    """Emit group events, stored in SQL until delivered: without listeners they would pile up."""

    async def emit(event: GroupEvent) -> None:
        if documents is not None and event.kind is LifeCycleEvent.GROUP_END:
            await documents.group_ended(event.group_id)
        await emitter.emit(
            event.kind, group_id=event.group_id, status=event.status, number=event.ending
        )

    return {LifeCycleEvent.GROUP_START: emit, LifeCycleEvent.GROUP_END: emit}


def _publisher(emitter: DurableEventEmitter) -> Any:
    """Emit events of runs and steps in this process."""

    async def publish(kind: LifeCycleEvent, make: Callable[[], RunNotice]) -> None:
        if not emitter.wants(kind):
            return
        notice = make()
        step, run = notice.run_step, notice.workflow_run
        await emitter.emit(
            kind,
            group_id=run.run_group_id,
            run_id=run.id,
            step_no=step.workflow_step_number,
            step=step.workflow_step_name,
            step_type=step.step_type,
            doc_id=run.doc_id,
            status=notice.status,
            message=notice.message,
            number=step.workflow_step_number * 1000 + step.retry,
        )

    return publish
