"""Put durable runs together from what an application has; loads SQLAlchemy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from lexigram.contracts.data.blobs import BlobStoreProtocol
from lexigram.contracts.infra.tasks.protocols import ProgressTrackerProtocol
from lexigram.sql.database import Database
from lexigram.workflow.durable.artifacts import ArtifactFolders, Artifacts
from lexigram.workflow.durable.bus_events import Announcements
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.documents import Documents
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.events import RunNotice
from lexigram.workflow.durable.fleet import FleetParts
from lexigram.workflow.durable.following import Following
from lexigram.workflow.durable.handler_catalog import HandlerCatalog
from lexigram.workflow.durable.handlers import Services
from lexigram.workflow.durable.orchestrated.runs import OrchestratedRuns, Orchestration
from lexigram.workflow.durable.plan import LifeCycleEvent
from lexigram.workflow.durable.questions import Questions
from lexigram.workflow.durable.registry import DefinitionFolders, DefinitionRegistry
from lexigram.workflow.durable.runs import DurableRuns
from lexigram.workflow.durable.store import GroupEvent, Terms
from lexigram.workflow.durable.store_overview import Overview
from lexigram.workflow.durable.sync_states import SyncStates
from lexigram.workflow.durable.worker import Metrics, Worker, WorkerConfig


@frozen(kw_only=True)
class Around:
    """What the application has beside the database."""

    services: Services
    announcements: Announcements
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


def assembled(database: Database, config: DurableConfig, around: Around) -> FleetParts:
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
    definitions = DefinitionRegistry(
        HandlerCatalog(handlers, prefixes=config.handler_prefixes),
        DefinitionFolders(
            workflow_dir=Path(config.workflow_dir),
            param_dir=Path(config.param_dir),
            user_param_dir=Path(config.user_param_dir),
        ),
        default_workflow_id=config.default_workflow_id,
        default_param_id=config.default_param_id,
        lancedb_dir=config.lancedb_dir,
        is_used=overview.uses_params,
    )
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
            ),
            engine,
            definitions.handlers,
            services=around.services,
            documents=None if documents is None else documents.load,
            artifacts=None if documents is None else documents.artifacts,
            metrics=around.metrics,
            listeners=_listeners(around.announcements, documents),
            publish=_publisher(around.announcements),
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
    announcements: Announcements, documents: Documents | None
) -> Mapping[LifeCycleEvent, Any]:
    """Of groups, kept in SQL until told. Also where nobody listens: else they would pile up."""

    async def tell(event: GroupEvent) -> None:
        if documents is not None and event.kind is LifeCycleEvent.GROUP_END:
            await documents.group_ended(event.group_id)
        await announcements.tell(
            event.kind, group_id=event.group_id, status=event.status, number=event.ending
        )

    return {LifeCycleEvent.GROUP_START: tell, LifeCycleEvent.GROUP_END: tell}


def _publisher(announcements: Announcements) -> Any:
    """Of runs and steps in this process."""

    async def publish(kind: LifeCycleEvent, make: Callable[[], RunNotice]) -> None:
        if not announcements.wants(kind):
            return
        notice = make()
        step, run = notice.run_step, notice.workflow_run
        await announcements.tell(
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
