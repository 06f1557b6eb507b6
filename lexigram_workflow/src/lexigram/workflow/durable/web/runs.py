"""``/workflow`` and ``/stats``: definitions, parameter sets, groups, runs, steps, locks, workers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.contracts.workflow.limits import MAX_PER_REQUEST
from lexigram.web import Inject
from lexigram.workflow.durable._listing import (
    describe_params,
    describe_unserved,
    describe_workflow,
)
from lexigram.workflow.durable.errors import DocumentNotFoundError, RunExistsError
from lexigram.workflow.durable.fleet import DurableFleet
from lexigram.workflow.durable.web.answers import (
    PREFIX,
    RESPONSES,
    DefinitionName,
    DefinitionRecord,
    DeleteResult,
    Durable,
    DurationRecord,
    FailureRecord,
    GroupDeleteResult,
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
    UnservedRecord,
    UpdateResult,
    Uploaded,
    WorkerRecord,
    page_of,
)
from lexigram.workflow.durable.web.bodies import body_docs, body_of
from lexigram.workflow.durable.web.fields import (
    Definition,
    Delay,
    Id,
    Limit,
    Name,
    Offset,
    Page,
    Priority,
    Rows,
    Text,
)

Fleet = Annotated[DurableFleet, Inject()]
# Lists without pages end here.
_MANY = MAX_PER_REQUEST


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True)


class StartRun(_Body):
    """A document to start a workflow for."""

    doc_id: Name = Field(description="The hash of the document: sha256-...")
    workflow_definition_id: Name | None = Field(
        default=None,
        description="Default: as configured; workflow_definiton_id is taken too.",
        validation_alias=AliasChoices("workflow_definition_id", "workflow_definiton_id"),
    )
    param_id: Name | None = None
    priority: Priority = 0
    tenant: Name | None = None
    delay: Delay = 0.0
    idempotency_key: Name | None = Field(
        default=None, description="A second call with it finds the first run."
    )
    name: Name | None = Field(default=None, description="Of the group.")
    again: bool = Field(default=False, description="Also when it has such a run already.")
    force: bool = Field(default=False, description="Do steps although what they make is there.")


class RunTarget(_Body):
    """A group or one run."""

    run_group_id: Id | None = None
    run_id: Id | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> RunTarget:
        if (self.run_group_id is None) == (self.run_id is None):
            raise ValueError("give run_group_id or run_id")
        return self

    @property
    def target(self) -> dict[str, int | None]:
        """For the engine."""
        return {"group_id": self.run_group_id, "run_id": self.run_id}


class Retry(RunTarget):
    """The runs to retry."""

    hard: bool = Field(default=False, description="Every run that is not completed.")


class YamlUpload(_Body):
    """A definition or parameter set to upload."""

    yaml_content: Definition


class Unlock(_Body):
    """A lock to release by force."""

    resource_key: Name
    reason: Text = "the REST API"


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
    async def definition(fleet: Fleet, workflow_id: Name) -> Any:
        return describe_workflow(await fleet.definitions.get(workflow_id))

    @router.post(
        "/workflow/definitions",
        tags=tags,
        status_code=201,
        response_model=Uploaded,
        summary="Upload a definition; its handlers must be on the allow-list",
        openapi_extra=body_docs(YamlUpload),
    )
    async def upload(
        fleet: Fleet, body: Annotated[YamlUpload, Depends(body_of(YamlUpload))]
    ) -> Any:
        made = await fleet.definitions.upload_workflow(body.yaml_content)
        return {"message": f"workflow {made.id} is stored", "id": made.id, "file_path": made.origin}

    # Both spellings are in use.
    for name in ("param-sets", "param_sets"):
        _parameter_sets(router, f"/workflow/{name}", tags, in_schema=name == "param-sets")


def _parameter_sets(router: APIRouter, path: str, tags: list[Any], *, in_schema: bool) -> None:
    options: dict[str, Any] = {"tags": tags, "include_in_schema": in_schema}

    many: Any = list[ParameterSetRecord]

    @router.get(path, response_model=many, summary="All parameter sets", **options)
    async def parameter_sets(fleet: Fleet) -> Any:
        return [describe_params(one) for one in await fleet.definitions.list_params()]

    @router.get(
        f"{path}/target/{{target}}",
        response_model=many,
        summary="Sets that store into a database",
        **options,
    )
    async def of_target(fleet: Fleet, target: Name) -> Any:
        found = await fleet.definitions.list_params()
        return [
            describe_params(one)
            for one in found
            if one.config.get("store", {}).get("data_dir") == target
        ]

    @router.get(
        f"{path}/{{param_id}}",
        response_model=ParameterSetRecord,
        summary="One parameter set",
        **options,
    )
    async def parameter_set(fleet: Fleet, param_id: Name) -> Any:
        return describe_params(await fleet.definitions.params(param_id))

    @router.post(
        path,
        status_code=201,
        response_model=Uploaded,
        summary="Upload a parameter set",
        openapi_extra=body_docs(YamlUpload),
        **options,
    )
    async def upload(
        fleet: Fleet, body: Annotated[YamlUpload, Depends(body_of(YamlUpload))]
    ) -> Any:
        made = await fleet.definitions.upload_params(body.yaml_content)
        message = f"parameter set {made.id} is stored"
        return {"message": message, "id": made.id, "file_path": made.origin}

    @router.delete(
        f"{path}/{{param_id}}",
        response_model=DeleteResult,
        summary="Delete an uploaded set",
        **options,
    )
    async def delete(fleet: Fleet, param_id: Name) -> Any:
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
        batch_id: Id | None = None,
        status: RunStatus | None = None,
        limit: Limit = 1000,
        offset: Offset = 0,
    ) -> Any:
        page = await fleet.overview.groups(
            batch_id=batch_id, status=status, limit=limit, offset=offset
        )
        return page.items

    @router.get(f"{path}/{{group_id}}", response_model=GroupRecord, summary="One group", **options)
    async def group(fleet: Fleet, group_id: Id) -> Any:
        return await fleet.overview.group(group_id)

    @router.delete(
        f"{path}/{{group_id}}",
        response_model=GroupDeleteResult,
        summary="Remove a group that has ended",
        **options,
    )
    async def delete(fleet: Fleet, group_id: Id) -> Any:
        statistics = await fleet.overview.remove_group(group_id)
        return {"message": f"group {group_id} is gone", "statistics": statistics}

    @router.get(
        f"{path}/{{group_id}}/stats",
        response_model=Stats,
        response_model_exclude_unset=True,
        summary="How far it is",
        **options,
    )
    async def stats(fleet: Fleet, group_id: Id) -> Any:
        return (await fleet.engine.stats(group_id)).to_dict()

    @router.get(
        f"{path}/{{group_id}}/lifecycle",
        response_model=list[LifecycleRecord],
        summary="Handlers of its events",
        **options,
    )
    async def lifecycle(fleet: Fleet, group_id: Id, limit: Limit = 1000) -> Any:
        await fleet.overview.group(group_id)
        return await fleet.overview.lifecycle(group_id=group_id, limit=limit)

    @router.get(
        f"{path}/{{group_id}}/failures",
        response_model=list[FailureRecord],
        summary="Runs that failed, and why",
        **options,
    )
    async def failures(fleet: Fleet, group_id: Id, limit: Limit = 1000) -> Any:
        await fleet.overview.group(group_id)
        return [asdict(one) for one in await fleet.following.failures(group_id, limit=limit)]


def _runs(router: APIRouter) -> None:
    tags: list[Any] = ["workflow runs"]
    answer: Any = RunPage | list[RunRecord]

    @router.get(
        "/workflow/", tags=tags, response_model=answer, summary="Runs, newest first", **_LEAN
    )
    async def list_runs(
        fleet: Fleet,
        batch_id: Id | None = None,
        include_steps: bool = False,
        include_doc_info: bool = False,
        page: Page = None,
        rows_per_page: Rows = None,
    ) -> Any:
        return await _list_runs(
            fleet, batch_id, None, include_steps, include_doc_info, page, rows_per_page
        )

    @router.get(
        "/workflow/by-status", tags=tags, response_model=answer, summary="Runs by status", **_LEAN
    )
    async def by_status(
        fleet: Fleet,
        status: RunStatus,
        batch_id: Id | None = None,
        include_doc_info: bool = False,
        page: Page = None,
        rows_per_page: Rows = None,
    ) -> Any:
        return await _list_runs(
            fleet, batch_id, status, False, include_doc_info, page, rows_per_page
        )

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
        batch_id: Id | None = None,
        run_group_id: Id | None = None,
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
    async def one(fleet: Fleet, run_id: Id) -> Any:
        return await fleet.overview.run(run_id)

    @router.get(
        "/workflow/runs/{run_id}/lifecycle",
        tags=tags,
        response_model=list[LifecycleRecord],
        summary="Handlers of the events of a run and its group",
    )
    async def lifecycle(fleet: Fleet, run_id: Id) -> Any:
        return await fleet.overview.lifecycle(run_id=run_id)

    @router.get(
        "/workflow/steps", tags=tags, response_model=list[StepRecord], summary="Steps by status"
    )
    async def steps(
        fleet: Fleet,
        status: RunStatus | None = None,
        run_group_id: Id | None = None,
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
        response_model=UpdateResult,
        summary="Retry failed and cancelled runs",
        openapi_extra=body_docs(Retry),
    )
    async def retry(fleet: Fleet, body: Annotated[Retry, Depends(body_of(Retry))]) -> Any:
        await _check_exists(fleet, body)
        return _describe_update("retried", await fleet.engine.retry(**body.target, hard=body.hard))

    @router.post(
        "/workflow/cancel",
        tags=tags,
        response_model=UpdateResult,
        summary="Cancel runs that are not final",
        openapi_extra=body_docs(RunTarget),
    )
    async def cancel(fleet: Fleet, body: Annotated[RunTarget, Depends(body_of(RunTarget))]) -> Any:
        await _check_exists(fleet, body)
        return _describe_update("cancelled", await fleet.engine.cancel(**body.target))

    @router.post(
        "/workflow/pause",
        tags=tags,
        response_model=UpdateResult,
        summary="Pause runs",
        openapi_extra=body_docs(RunTarget),
    )
    async def pause(fleet: Fleet, body: Annotated[RunTarget, Depends(body_of(RunTarget))]) -> Any:
        await _check_exists(fleet, body)
        return _describe_update("paused", await fleet.engine.pause(**body.target))

    @router.post(
        "/workflow/resume",
        tags=tags,
        response_model=UpdateResult,
        summary="Resume paused runs",
        openapi_extra=body_docs(RunTarget),
    )
    async def resume(fleet: Fleet, body: Annotated[RunTarget, Depends(body_of(RunTarget))]) -> Any:
        await _check_exists(fleet, body)
        return _describe_update("resumed", await fleet.engine.resume(**body.target))

    @router.get(
        "/workflow/locks",
        tags=tags,
        response_model=list[LockRecord],
        summary="List locked resources",
    )
    async def locks(fleet: Fleet) -> Any:
        return await fleet.overview.locks()

    @router.post(
        "/workflow/locks/release",
        tags=tags,
        response_model=Released,
        summary="Release a lock by force",
        openapi_extra=body_docs(Unlock),
    )
    async def unlock(fleet: Fleet, body: Annotated[Unlock, Depends(body_of(Unlock))]) -> Any:
        done = await fleet.engine.force_release_resource_lock(body.resource_key, reason=body.reason)
        return {"resource_key": body.resource_key, "released": done}

    @router.get(
        "/workflow/workers",
        tags=tags,
        response_model=list[WorkerRecord],
        summary="List workers that have checked in",
    )
    async def workers(fleet: Fleet) -> Any:
        return await fleet.overview.workers()

    @router.get(
        "/workflow/workers/missing",
        tags=tags,
        response_model=list[UnservedRecord],
        summary="List handlers that runs wait for and no live worker has",
    )
    async def missing(fleet: Fleet) -> Any:
        return [describe_unserved(one) for one in await fleet.engine.unserved()]


def _stats(router: APIRouter) -> None:
    tags: list[Any] = ["stats"]

    @router.get(
        "/stats/durations",
        tags=tags,
        response_model=list[DurationRecord],
        summary="Runs of a group, the longest first",
    )
    async def durations(fleet: Fleet, run_group_id: Id, limit: Limit = 1000) -> Any:
        return await fleet.overview.durations(run_group_id, limit=limit)

    @router.get(
        "/stats/step-stats",
        tags=tags,
        response_model=list[StepStatsRecord],
        summary="Attempts and durations by step",
    )
    async def step_stats(fleet: Fleet, run_group_id: Id) -> Any:
        return await fleet.overview.step_stats(run_group_id)


# Fields that were not requested are left out instead of being null.
_LEAN: dict[str, Any] = {"response_model_exclude_unset": True}


async def _list_runs(
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


async def _check_exists(fleet: DurableFleet, aim: RunTarget) -> None:
    """Raise the error for 404 if the target does not exist."""
    if aim.run_group_id is not None:
        await fleet.overview.group(aim.run_group_id)
    elif aim.run_id is not None:
        await fleet.engine.run(aim.run_id)


def _describe_update(what: str, number: int) -> dict[str, Any]:
    return {"message": f"{number} runs {what}", "runs": number}
