"""``/workflow`` and ``/stats``: definitions, parameter sets, groups, runs, steps, locks, workers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.web import Inject
from lexigram.workflow.durable.errors import DocumentNotFoundError, RunExistsError
from lexigram.workflow.durable.fleet import DurableFleet
from lexigram.workflow.durable.listing import described_params, described_workflow
from lexigram.workflow.durable.web.answers import (
    PREFIX,
    RESPONSES,
    Changed,
    DefinitionName,
    DefinitionRecord,
    Durable,
    DurationRecord,
    FailureRecord,
    Gone,
    GroupGone,
    GroupRecord,
    LifecycleRecord,
    LockRecord,
    ParameterSetRecord,
    Released,
    RunPage,
    RunRecord,
    Stats,
    StepRecord,
    StepStatsRecord,
    Uploaded,
    WorkerRecord,
    page_of,
)
from lexigram.workflow.durable.web.bodies import body_docs, body_of

Fleet = Annotated[DurableFleet, Inject()]
Page = Annotated[int | None, Query(ge=1, description="From 1; without it the answer is a list.")]
Rows = Annotated[int | None, Query(ge=1, le=1000, description="Of a page; 10 unless told.")]
Limit = Annotated[int, Query(ge=1, le=10_000)]
Offset = Annotated[int, Query(ge=0)]
# Lists without pages end here.
_MANY = 10_000


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True)


class StartRun(_Body):
    """A document to start a workflow for."""

    doc_id: str = Field(description="The hash of the document: sha256-...")
    workflow_definition_id: str | None = Field(
        default=None,
        description="Default: as configured; workflow_definiton_id is taken too.",
        validation_alias=AliasChoices("workflow_definition_id", "workflow_definiton_id"),
    )
    param_id: str | None = None
    priority: int = 0
    tenant: str | None = Field(default=None, max_length=255)
    delay: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="Seconds before it may begin."
    )
    idempotency_key: str | None = Field(
        default=None, max_length=255, description="A second call with it finds the first run."
    )
    name: str | None = Field(default=None, max_length=255, description="Of the group.")
    again: bool = Field(default=False, description="Also when it has such a run already.")
    force: bool = Field(default=False, description="Do steps although what they make is there.")


class Aim(_Body):
    """A group or one run."""

    run_group_id: int | None = None
    run_id: int | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Aim:
        if (self.run_group_id is None) == (self.run_id is None):
            raise ValueError("give run_group_id or run_id")
        return self

    @property
    def target(self) -> dict[str, int | None]:
        """For the engine."""
        return {"group_id": self.run_group_id, "run_id": self.run_id}


class Retry(Aim):
    """What to begin again."""

    hard: bool = Field(default=False, description="Every run that is not completed.")


class Yaml(_Body):
    """A definition or parameter set to upload."""

    yaml_content: str = Field(min_length=1)


class Unlock(_Body):
    """A lock to take away."""

    resource_key: str
    reason: str = "the REST API"


def runs() -> APIRouter:
    """The routes."""
    router = APIRouter(prefix=PREFIX, route_class=Durable, responses=RESPONSES)
    _definitions(router)
    _groups(router)
    _runs(router)
    _by_hand(router)
    _stats(router)
    return router


def _definitions(router: APIRouter) -> None:
    tags: list[Any] = ["workflow definitions"]

    @router.get(
        "/workflow/definitions",
        tags=tags,
        response_model=list[DefinitionName],
        summary="All workflow definitions",
    )
    async def definitions(fleet: Fleet) -> Any:
        return [{"id": one.id, "name": one.name} for one in await fleet.definitions.list()]

    @router.get(
        "/workflow/definitions/{workflow_id}",
        tags=tags,
        response_model=DefinitionRecord,
        summary="One definition",
    )
    async def definition(fleet: Fleet, workflow_id: str) -> Any:
        return described_workflow(await fleet.definitions.get(workflow_id))

    @router.post(
        "/workflow/definitions",
        tags=tags,
        status_code=201,
        response_model=Uploaded,
        summary="Upload a definition; its handlers must be on the allow-list",
        openapi_extra=body_docs(Yaml),
    )
    async def upload(fleet: Fleet, body: Annotated[Yaml, Depends(body_of(Yaml))]) -> Any:
        made = await fleet.definitions.upload_workflow(body.yaml_content)
        return {"message": f"workflow {made.id} is there", "id": made.id, "file_path": made.origin}

    # Both spellings are in use.
    for name in ("param-sets", "param_sets"):
        _parameter_sets(router, f"/workflow/{name}", tags, in_schema=name == "param-sets")


def _parameter_sets(router: APIRouter, path: str, tags: list[Any], *, in_schema: bool) -> None:
    options: dict[str, Any] = {"tags": tags, "include_in_schema": in_schema}

    many: Any = list[ParameterSetRecord]

    @router.get(path, response_model=many, summary="All parameter sets", **options)
    async def parameter_sets(fleet: Fleet) -> Any:
        return [described_params(one) for one in await fleet.definitions.list_params()]

    @router.get(
        f"{path}/target/{{target}}",
        response_model=many,
        summary="Sets that store into a database",
        **options,
    )
    async def of_target(fleet: Fleet, target: str) -> Any:
        found = await fleet.definitions.list_params()
        return [
            described_params(one)
            for one in found
            if one.config.get("store", {}).get("data_dir") == target
        ]

    @router.get(
        f"{path}/{{param_id}}",
        response_model=ParameterSetRecord,
        summary="One parameter set",
        **options,
    )
    async def parameter_set(fleet: Fleet, param_id: str) -> Any:
        return described_params(await fleet.definitions.params(param_id))

    @router.post(
        path,
        status_code=201,
        response_model=Uploaded,
        summary="Upload a parameter set",
        openapi_extra=body_docs(Yaml),
        **options,
    )
    async def upload(fleet: Fleet, body: Annotated[Yaml, Depends(body_of(Yaml))]) -> Any:
        made = await fleet.definitions.upload_params(body.yaml_content)
        told = f"parameter set {made.id} is there"
        return {"message": told, "id": made.id, "file_path": made.origin}

    @router.delete(
        f"{path}/{{param_id}}", response_model=Gone, summary="Delete an uploaded set", **options
    )
    async def delete(fleet: Fleet, param_id: str) -> Any:
        await fleet.definitions.delete_params(param_id)
        return {"message": f"parameter set {param_id} is gone", "id": param_id}


def _groups(router: APIRouter) -> None:
    for name in ("run-groups", "run_groups"):
        _groups_at(router, f"/workflow/{name}", in_schema=name == "run-groups")


def _groups_at(router: APIRouter, path: str, *, in_schema: bool) -> None:
    options: dict[str, Any] = {"tags": ["run groups"], "include_in_schema": in_schema}

    @router.get(path, response_model=list[GroupRecord], summary="Groups, newest first", **options)
    async def groups(
        fleet: Fleet,
        batch_id: int | None = None,
        status: RunStatus | None = None,
        limit: Limit = 1000,
        offset: Offset = 0,
    ) -> Any:
        page = await fleet.overview.groups(
            batch_id=batch_id, status=status, limit=limit, offset=offset
        )
        return page.items

    @router.get(f"{path}/{{group_id}}", response_model=GroupRecord, summary="One group", **options)
    async def group(fleet: Fleet, group_id: int) -> Any:
        return await fleet.overview.group(group_id)

    @router.delete(
        f"{path}/{{group_id}}",
        response_model=GroupGone,
        summary="Remove a group that has ended",
        **options,
    )
    async def delete(fleet: Fleet, group_id: int) -> Any:
        statistics = await fleet.overview.remove_group(group_id)
        return {"message": f"group {group_id} is gone", "statistics": statistics}

    @router.get(
        f"{path}/{{group_id}}/stats", response_model=Stats, summary="How far it is", **options
    )
    async def stats(fleet: Fleet, group_id: int) -> Any:
        return (await fleet.engine.stats(group_id)).to_dict()

    @router.get(
        f"{path}/{{group_id}}/lifecycle",
        response_model=list[LifecycleRecord],
        summary="Handlers of its events",
        **options,
    )
    async def lifecycle(fleet: Fleet, group_id: int, limit: Limit = 1000) -> Any:
        await fleet.overview.group(group_id)
        return await fleet.overview.lifecycle(group_id=group_id, limit=limit)

    @router.get(
        f"{path}/{{group_id}}/failures",
        response_model=list[FailureRecord],
        summary="Runs that failed, and why",
        **options,
    )
    async def failures(fleet: Fleet, group_id: int, limit: Limit = 1000) -> Any:
        await fleet.overview.group(group_id)
        return [asdict(one) for one in await fleet.following.failures(group_id, limit=limit)]


def _runs(router: APIRouter) -> None:
    tags: list[Any] = ["workflow runs"]
    answer: Any = RunPage | list[RunRecord]

    @router.get(
        "/workflow/", tags=tags, response_model=answer, summary="Runs, newest first", **_LEAN
    )
    async def listed(
        fleet: Fleet,
        batch_id: int | None = None,
        include_steps: bool = False,
        include_doc_info: bool = False,
        page: Page = None,
        rows_per_page: Rows = None,
    ) -> Any:
        return await _listed(
            fleet, batch_id, None, include_steps, include_doc_info, page, rows_per_page
        )

    @router.get(
        "/workflow/by-status", tags=tags, response_model=answer, summary="Runs by status", **_LEAN
    )
    async def by_status(
        fleet: Fleet,
        status: RunStatus,
        batch_id: int | None = None,
        include_doc_info: bool = False,
        page: Page = None,
        rows_per_page: Rows = None,
    ) -> Any:
        return await _listed(fleet, batch_id, status, False, include_doc_info, page, rows_per_page)

    @router.post(
        "/workflow/",
        tags=tags,
        status_code=201,
        response_model=RunRecord,
        summary="Start a workflow for a stored document",
        openapi_extra=body_docs(StartRun),
        **_LEAN,
    )
    async def start(fleet: Fleet, body: Annotated[StartRun, Depends(body_of(StartRun))]) -> Any:
        started = await fleet.runs.start_document(
            body.doc_id,
            workflow_id=body.workflow_definition_id,
            param_id=body.param_id,
            priority=body.priority,
            tenant_id=body.tenant,
            delay=body.delay,
            idempotency_key=body.idempotency_key,
            name=body.name,
            again=body.again,
            force=body.force,
        )
        if not (started.runs or started.is_repeat) or started.group_id is None:
            raise RunExistsError(
                f"{body.doc_id} has such a run already, in group {started.group_id}",
                details={"doc_id": body.doc_id, "run_group_id": started.group_id},
                hint="again=true starts another one",
            )
        page = await fleet.overview.runs(group_id=started.group_id, limit=1)
        run_id = page.items[0]["id"]
        return await fleet.overview.run(run_id)

    @router.get(
        "/workflow/runs", tags=tags, response_model=list[RunRecord], summary="Runs", **_LEAN
    )
    async def of_batch(
        fleet: Fleet,
        batch_id: int | None = None,
        run_group_id: int | None = None,
        status: RunStatus | None = None,
        limit: Limit = 1000,
        offset: Offset = 0,
    ) -> Any:
        page = await fleet.overview.runs(
            group_id=run_group_id, batch_id=batch_id, status=status, limit=limit, offset=offset
        )
        return page.items

    @router.get(
        "/workflow/runs/{run_id}", tags=tags, response_model=RunRecord, summary="A run, its steps"
    )
    async def one(fleet: Fleet, run_id: int) -> Any:
        return await fleet.overview.run(run_id)

    @router.get(
        "/workflow/runs/{run_id}/lifecycle",
        tags=tags,
        response_model=list[LifecycleRecord],
        summary="Handlers of the events of a run and its group",
    )
    async def lifecycle(fleet: Fleet, run_id: int) -> Any:
        return await fleet.overview.lifecycle(run_id=run_id)

    @router.get(
        "/workflow/steps", tags=tags, response_model=list[StepRecord], summary="Steps by status"
    )
    async def steps(
        fleet: Fleet,
        status: RunStatus | None = None,
        run_group_id: int | None = None,
        limit: Limit = 1000,
        offset: Offset = 0,
    ) -> Any:
        return await fleet.overview.steps(
            status=status, group_id=run_group_id, limit=limit, offset=offset
        )


def _by_hand(router: APIRouter) -> None:
    tags: list[Any] = ["by hand"]

    @router.post(
        "/workflow/retry",
        tags=tags,
        status_code=201,
        response_model=Changed,
        summary="Begin failed and cancelled runs again",
        openapi_extra=body_docs(Retry),
    )
    async def retry(fleet: Fleet, body: Annotated[Retry, Depends(body_of(Retry))]) -> Any:
        await _known(fleet, body)
        return _changed("retried", await fleet.engine.retry(**body.target, hard=body.hard))

    @router.post(
        "/workflow/cancel",
        tags=tags,
        response_model=Changed,
        summary="Cancel what is not final",
        openapi_extra=body_docs(Aim),
    )
    async def cancel(fleet: Fleet, body: Annotated[Aim, Depends(body_of(Aim))]) -> Any:
        await _known(fleet, body)
        return _changed("cancelled", await fleet.engine.cancel(**body.target))

    @router.post(
        "/workflow/pause",
        tags=tags,
        response_model=Changed,
        summary="Keep runs from going on",
        openapi_extra=body_docs(Aim),
    )
    async def pause(fleet: Fleet, body: Annotated[Aim, Depends(body_of(Aim))]) -> Any:
        await _known(fleet, body)
        return _changed("paused", await fleet.engine.pause(**body.target))

    @router.post(
        "/workflow/resume",
        tags=tags,
        response_model=Changed,
        summary="Let paused runs go on",
        openapi_extra=body_docs(Aim),
    )
    async def resume(fleet: Fleet, body: Annotated[Aim, Depends(body_of(Aim))]) -> Any:
        await _known(fleet, body)
        return _changed("resumed", await fleet.engine.resume(**body.target))

    @router.get(
        "/workflow/locks",
        tags=tags,
        response_model=list[LockRecord],
        summary="Resources that somebody holds",
    )
    async def locks(fleet: Fleet) -> Any:
        return await fleet.overview.locks()

    @router.post(
        "/workflow/locks/release",
        tags=tags,
        response_model=Released,
        summary="Take a lock from whoever has it",
        openapi_extra=body_docs(Unlock),
    )
    async def unlock(fleet: Fleet, body: Annotated[Unlock, Depends(body_of(Unlock))]) -> Any:
        done = await fleet.engine.force_release_resource_lock(body.resource_key, reason=body.reason)
        return {"resource_key": body.resource_key, "released": done}

    @router.get(
        "/workflow/workers",
        tags=tags,
        response_model=list[WorkerRecord],
        summary="Workers that have checked in",
    )
    async def workers(fleet: Fleet) -> Any:
        return await fleet.overview.workers()


def _stats(router: APIRouter) -> None:
    tags: list[Any] = ["stats"]

    @router.get(
        "/stats/durations",
        tags=tags,
        response_model=list[DurationRecord],
        summary="Runs of a group, the longest first",
    )
    async def durations(fleet: Fleet, run_group_id: int, limit: Limit = 1000) -> Any:
        return await fleet.overview.durations(run_group_id, limit=limit)

    @router.get(
        "/stats/step-stats",
        tags=tags,
        response_model=list[StepStatsRecord],
        summary="Attempts and durations by step",
    )
    async def step_stats(fleet: Fleet, run_group_id: int) -> Any:
        return await fleet.overview.step_stats(run_group_id)


# What was not asked for is left out instead of being null.
_LEAN: dict[str, Any] = {"response_model_exclude_unset": True}


async def _listed(
    fleet: DurableFleet,
    batch_id: int | None,
    status: RunStatus | None,
    include_steps: bool,
    include_doc_info: bool,
    page: int | None,
    rows_per_page: int | None,
) -> Any:
    paged = page is not None or rows_per_page is not None
    number, rows = page or 1, rows_per_page or (10 if paged else _MANY)
    found = await fleet.overview.runs(
        batch_id=batch_id, status=status, limit=rows, offset=(number - 1) * rows
    )
    items = [dict(item) for item in found.items]
    if include_steps:
        for item in items:
            item["steps"] = await fleet.overview.steps_of(item["id"])
    if include_doc_info:
        for item in items:
            item["document"] = await _document(fleet, item["doc_id"])
    return page_of(items, found.total, number, rows) if paged else items


async def _document(fleet: DurableFleet, doc_id: str | None) -> dict[str, Any] | None:
    """What is stored of the document of a run; None when it is gone."""
    if doc_id is None:
        return None
    try:
        found = await fleet.documents.document(doc_id)
    except DocumentNotFoundError:
        return None
    return {
        "hash": found.hash,
        "uri": found.uri,
        "source": found.source,
        "mime_type": found.mime_type,
        "file_size": found.file_size,
        "doc_meta": dict(found.metadata),
    }


async def _known(fleet: DurableFleet, aim: Aim) -> None:
    """404 instead of nothing done."""
    if aim.run_group_id is not None:
        await fleet.overview.group(aim.run_group_id)
    elif aim.run_id is not None:
        await fleet.engine.run(aim.run_id)


def _changed(what: str, number: int) -> dict[str, Any]:
    return {"message": f"{number} runs {what}", "runs": number}
