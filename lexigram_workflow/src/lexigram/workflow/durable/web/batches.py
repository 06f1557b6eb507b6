"""``/batch``: documents that came together, and the runs that are started for them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from lexigram.web import Inject
from lexigram.workflow.durable.documents.documents import Batch
from lexigram.workflow.durable.fleet import DurableFleet
from lexigram.workflow.durable.store.overview import moment
from lexigram.workflow.durable.web.answers import PREFIX, RESPONSES, Durable, StepRecord
from lexigram.workflow.durable.web.bodies import body_docs, body_of
from lexigram.workflow.durable.web.fields import Delay, Id, Limit, Name, Offset, Priority

Fleet = Annotated[DurableFleet, Inject()]


class NewBatch(BaseModel):
    """A batch to bring documents into."""

    model_config = ConfigDict(extra="ignore")

    source: Name
    name: Name | None = None


class StartBatch(BaseModel):
    """Which workflow to start for the documents of a batch."""

    model_config = ConfigDict(extra="ignore")

    batch_id: Id
    workflow_definition_id: Name | None = Field(
        default=None,
        validation_alias=AliasChoices("workflow_definition_id", "workflow_definiton_id"),
    )
    param_id: Name | None = None
    priority: Priority = 0
    tenant: Name | None = None
    delay: Delay = 0.0
    idempotency_key: Name | None = Field(
        default=None, description="A second call with it finds the first group."
    )
    name: Name | None = Field(default=None, description="Of the group.")
    only_unparsed: bool = Field(
        default=False, description="Leave out documents whose parsed form exists."
    )
    skip_existing: bool = Field(
        default=False, description="Leave out documents that any batch completed."
    )
    again: bool = Field(
        default=False, description="Also for documents that have such a run already."
    )
    force: bool = Field(default=False, description="Do steps although what they make is there.")


class BatchRecord(BaseModel):
    """A batch."""

    id: int
    name: str | None
    source: str
    start_date: str
    completed_date: str | None
    batch_params: dict[str, Any]
    document_count: int
    duration: float | None


class BatchStatus(BaseModel):
    """How far the runs of a batch are."""

    batch: BatchRecord
    document_count: int
    workflow_count: dict[str, int] = Field(description="Runs by status.")
    workflows: int
    parsed: int = Field(description="Documents with a run that completed.")
    remaining: int = Field(description="Runs that are not final.")


class BatchStarted(BaseModel):
    """What was started."""

    message: str
    workflows: int = Field(description="New runs.")
    skipped: int = Field(description="Documents without a new run.")
    run_group: int | None


class BatchMade(BaseModel):
    """The number of a new batch."""

    batch_id: int


def batches() -> APIRouter:
    """The routes."""
    router = APIRouter(
        prefix=f"{PREFIX}/batch", route_class=Durable, responses=RESPONSES, tags=["batches"]
    )

    @router.get("/", response_model=list[BatchRecord], summary="Batches, newest first")
    async def list_batches(fleet: Fleet, limit: Limit = 1000, offset: Offset = 0) -> Any:
        found, _ = await fleet.documents.batches(limit=limit, offset=offset)
        return [_record(batch) for batch in found]

    @router.post(
        "/",
        status_code=201,
        response_model=BatchMade,
        summary="Make a batch",
        openapi_extra=body_docs(NewBatch),
    )
    async def make(fleet: Fleet, body: Annotated[NewBatch, Depends(body_of(NewBatch))]) -> Any:
        return {"batch_id": await fleet.documents.create_batch(body.source, body.name)}

    @router.post(
        "/start-workflows",
        status_code=201,
        response_model=BatchStarted,
        summary="Start a workflow for every document of a batch",
        openapi_extra=body_docs(StartBatch),
    )
    async def start(fleet: Fleet, body: Annotated[StartBatch, Depends(body_of(StartBatch))]) -> Any:
        started = await fleet.runs.start_batch(
            body.batch_id,
            workflow_id=body.workflow_definition_id,
            param_id=body.param_id,
            priority=body.priority,
            tenant_id=body.tenant,
            delay=body.delay,
            idempotency_key=body.idempotency_key,
            name=body.name,
            only_unparsed=body.only_unparsed,
            skip_existing=body.skip_existing,
            again=body.again,
            force=body.force,
        )
        return {
            "message": f"{started.runs} runs started",
            "workflows": started.runs,
            "skipped": started.skipped,
            "run_group": started.group_id,
        }

    @router.get("/status", response_model=BatchStatus, summary="How far a batch is")
    async def status(fleet: Fleet, batch_id: Id) -> Any:
        batch = await fleet.documents.batch(batch_id)
        counts = await fleet.overview.counts(batch_id)
        final = sum(counts.get(name, 0) for name in ("COMPLETED", "FAILED", "CANCELLED"))
        return {
            "batch": _record(batch),
            "document_count": batch.document_count,
            "workflow_count": counts,
            "workflows": sum(counts.values()),
            "parsed": await fleet.overview.documents_done(batch_id),
            "remaining": sum(counts.values()) - final,
        }

    @router.get("/{batch_id}", response_model=BatchRecord, summary="One batch")
    async def one(fleet: Fleet, batch_id: Id) -> Any:
        return _record(await fleet.documents.batch(batch_id))

    @router.get("/{batch_id}/steps", response_model=list[StepRecord], summary="Steps of its runs")
    async def steps(fleet: Fleet, batch_id: Id, limit: Limit = 1000, offset: Offset = 0) -> Any:
        await fleet.documents.batch(batch_id)
        return await fleet.overview.steps(batch_id=batch_id, limit=limit, offset=offset)

    return router


def _record(batch: Batch) -> dict[str, Any]:
    return {
        "id": batch.id,
        "name": batch.name,
        "source": batch.source,
        "start_date": moment(batch.created_at),
        "completed_date": moment(batch.completed_at),
        "batch_params": dict(batch.params),
        "document_count": batch.document_count,
        "duration": batch.duration,
    }
