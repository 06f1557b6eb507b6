"""``/sync-state``: the last synced state of a source, for incremental syncs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field, field_validator

from lexigram.web import Inject
from lexigram.workflow.durable._listing import describe_sync
from lexigram.workflow.durable.errors import DocumentNotFoundError
from lexigram.workflow.durable.fleet import DurableFleet
from lexigram.workflow.durable.store.sync_states import BRANCH
from lexigram.workflow.durable.web.answers import PREFIX, RESPONSES, Durable
from lexigram.workflow.durable.web.bodies import body_docs, body_of, json_object
from lexigram.workflow.durable.web.fields import Name

Fleet = Annotated[DurableFleet, Inject()]


class KeepState(BaseModel):
    """How far a source is now."""

    model_config = ConfigDict(extra="ignore")

    commit_sha: Name
    branch: Name = BRANCH
    metadata: dict[str, Any] = Field(
        default={}, description="JSON; laid over what was kept before."
    )

    _parsed = field_validator("metadata", mode="before")(json_object)


class SyncRecord(BaseModel):
    """The sync state of a source; without a commit before its first sync."""

    source_id: str
    last_commit_sha: str | None
    last_sync_date: str | None
    branch: str
    sync_metadata: dict[str, Any]


class Forgotten(BaseModel):
    """What was removed."""

    message: str
    source_id: str


def sync_states() -> APIRouter:
    """The routes."""
    router = APIRouter(prefix=PREFIX, route_class=Durable, responses=RESPONSES)
    tags: list[Any] = ["sync state"]
    # names of sources may have slashes
    path = "/sync-state/{source_id:path}"

    @router.get(path, tags=tags, response_model=SyncRecord, summary="How far a source is")
    async def state(fleet: Fleet, source_id: Name) -> Any:
        return describe_sync(await fleet.sync_states.get(source_id))

    @router.put(
        path,
        tags=tags,
        response_model=SyncRecord,
        summary="Keep how far a source is",
        openapi_extra=body_docs(KeepState),
    )
    async def keep(
        fleet: Fleet, source_id: Name, body: Annotated[KeepState, Depends(body_of(KeepState))]
    ) -> Any:
        kept = await fleet.sync_states.put(
            source_id, body.commit_sha, branch=body.branch, metadata=body.metadata
        )
        return describe_sync(kept)

    @router.delete(path, tags=tags, response_model=Forgotten, summary="Begin anew next time")
    async def forget(fleet: Fleet, source_id: Name) -> Any:
        if not await fleet.sync_states.forget(source_id):
            raise DocumentNotFoundError(
                f"nothing is kept about the source {source_id!r}", details={"source_id": source_id}
            )
        return {"message": f"{source_id} begins anew", "source_id": source_id}

    return router
