"""Responses of the routes of durable runs: records, pages, and errors with their status."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field

from lexigram.contracts.core.errors import ConfigurationError, LexigramError
from lexigram.contracts.core.lock import LockConflictError
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.contracts.workflow.errors import InvalidRunError
from lexigram.observability import get_logger
from lexigram.web.errors import RequestInvalidError
from lexigram.web.problems import ERROR_KEY
from lexigram.workflow.durable.errors import (
    BatchCompletedError,
    BodyTypeError,
    BodyUnreadableError,
    DefinitionExistsError,
    DefinitionInvalidError,
    DefinitionNotFoundError,
    DefinitionProtectedError,
    DocumentInUseError,
    DocumentNotFoundError,
    DocumentSourceError,
    DurableError,
    GroupBusyError,
    NotOrchestratedError,
    OrchestrationNotFoundError,
    PlanInvalidError,
    QuestionUnclearError,
    RunExistsError,
    RunNotFoundError,
    RunNotParkedError,
)
from lexigram.workflow.errors import WorkflowStepError

PREFIX: Final = "/api/v1"

logger = get_logger(__name__)

# The nearest class counts; other errors are handled by the host.
STATUSES: Final[Mapping[type[Exception], int]] = {
    BodyUnreadableError: 400,
    BodyTypeError: 415,
    PlanInvalidError: 400,
    InvalidRunError: 422,
    DefinitionInvalidError: 400,
    DocumentSourceError: 400,
    # an answer that the node which asked refuses
    WorkflowStepError: 400,
    DefinitionProtectedError: 403,
    RunNotFoundError: 404,
    DefinitionNotFoundError: 404,
    DocumentNotFoundError: 404,
    OrchestrationNotFoundError: 404,
    NotOrchestratedError: 404,
    RunNotParkedError: 409,
    QuestionUnclearError: 409,
    DefinitionExistsError: 409,
    GroupBusyError: 409,
    RunExistsError: 409,
    DocumentInUseError: 409,
    BatchCompletedError: 409,
    LockConflictError: 409,
    ConfigurationError: 503,
    DurableError: 503,
}


class ErrorAnswer(BaseModel):
    """An error."""

    error: str = Field(description="Error message.")
    code: str = Field(description="Error code of Lexigram.")
    hint: str | None = Field(default=None, description="How to fix it.")
    details: dict[str, Any] | None = Field(default=None, description="Facts about the error.")


class Durable(APIRoute):
    """A route whose errors are ``{"error", "code", "hint"}``, as in Soliplex Ingester."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint, with errors of durable runs answered."""
        inner = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await inner(request)
            except RequestValidationError as error:
                request.scope[ERROR_KEY] = error  # resources of the request see it
                return _answer_invalid(error)
            except LexigramError as error:
                status = _status(error)
                if status is None:
                    raise
                request.scope[ERROR_KEY] = error
                return _answer_error(request, error, status)

        return answer


RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorAnswer, "description": "The request is invalid."},
    404: {"model": ErrorAnswer, "description": "The resource was not found."},
    409: {"model": ErrorAnswer, "description": "The request conflicts with the current state."},
    415: {"model": ErrorAnswer, "description": "The body is neither JSON nor a form."},
    422: {
        "model": ErrorAnswer,
        "description": "A parameter is missing, of the wrong type or out of bounds.",
    },
    503: {"model": ErrorAnswer, "description": "The store of durable runs is unavailable."},
}


class GroupRecord(BaseModel):
    """A group of runs that were started together."""

    id: int
    name: str | None
    workflow_definition_id: str
    param_definition_id: str | None
    batch_id: int | None
    status: RunStatus
    total_runs: int
    remaining: int
    failed: int
    cancelled: int
    created_date: str
    start_date: str | None
    completed_date: str | None
    duration: float | None


class StepRecord(BaseModel):
    """A step of a run; those not reached yet are PENDING."""

    id: int
    workflow_run_id: int
    workflow_step_number: int
    workflow_step_name: str
    step_config_id: int
    step_type: str
    is_last_step: bool
    created_date: str
    priority: int
    start_date: str | None
    status_date: str | None
    completed_date: str | None
    retry: int
    retries: int
    status: RunStatus
    status_message: str | None
    status_meta: dict[str, Any]
    worker_id: str | None
    resource_key: str | None


class RunRecord(BaseModel):
    """One execution of a workflow."""

    id: int
    workflow_definition_id: str
    param_definition_id: str | None
    run_group_id: int
    batch_id: int | None
    doc_id: str | None
    parent_run_id: int | None = Field(description="The run that made it.")
    tenant: str | None
    priority: int
    status: RunStatus
    state: str = Field(
        description="What it waits for: ready, delayed, blocked, paused, waiting, parked."
    )
    asks: str | None = Field(description="The question that it, or a run that it made, asked.")
    step: int
    steps_total: int
    created_date: str
    start_date: str | None
    completed_date: str | None
    status_date: str
    status_message: str | None
    run_params: dict[str, Any]
    duration: float | None
    steps: list[StepRecord] | None = None
    document: dict[str, Any] | None = None


class RunPage(BaseModel):
    """Some of many runs."""

    items: list[RunRecord]
    total: int
    page: int
    rows_per_page: int
    total_pages: int


class Stats(BaseModel):
    """Statistics of a group."""

    total_runs: int
    completed: int
    running: int
    pending: int
    failed: int
    average_duration: float | None
    group_status: RunStatus
    problems: list[str] = Field(
        default=[], description="Why runs cannot begin; left out when nothing is wrong."
    )


class LifecycleRecord(BaseModel):
    """A handler of an event that was called."""

    event_id: int
    handler_no: int
    handler_name: str
    event: str
    run_group_id: int
    workflow_run_id: int | None
    step_no: int | None
    status: RunStatus
    attempts: int
    worker_id: str | None
    start_date: str
    completed_date: str | None
    status_message: str | None
    status_meta: dict[str, Any]


class FailureRecord(BaseModel):
    """A run that failed, and why."""

    run_id: int
    uri: str | None
    step: str
    error_type: str
    message: str


class LockRecord(BaseModel):
    """A locked resource."""

    resource_key: str
    holder_id: str
    holder_kind: str
    step_id: int | None
    acquired_at: str
    expires_at: str | None
    holder_meta: dict[str, Any]


class WorkerRecord(BaseModel):
    """A worker that has checked in."""

    id: str
    first_checkin: str
    last_checkin: str


class UnservedRecord(BaseModel):
    """Steps that runs wait at and no live worker claims, or events whose handler none has."""

    handler: str = Field(description="What a worker must have.")
    pool: str | None = Field(description="The pool that takes the steps; null for events.")
    event: str | None = Field(description="The kind of the events; null for steps.")
    waits_since: str
    message: str


class DurationRecord(BaseModel):
    """How long a run took, in seconds."""

    workflow_run_id: int
    doc_id: str | None
    status: RunStatus
    duration: float | None


class StepStatsRecord(BaseModel):
    """Attempts at a step that ended alike; durations are seconds."""

    step: str
    step_type: str
    step_no: int
    status: str
    attempts: int
    average_duration: float | None
    shortest: float | None
    longest: float | None


class DefinitionName(BaseModel):
    """A workflow definition."""

    id: str
    name: str


class StepDefinitionRecord(BaseModel):
    """A step of a definition."""

    key: str
    type: str
    name: str
    method: str
    retries: int
    timeout: float | None
    backoff: float
    backoff_cap: float
    resource_key: str | None
    pool: str | None
    when: str | None
    parameters: dict[str, Any]


class HandlerRecord(BaseModel):
    """A handler of an event."""

    name: str
    method: str
    retries: int
    parameters: dict[str, Any]


class DefinitionRecord(DefinitionName):
    """A workflow definition with its steps."""

    meta: dict[str, Any]
    steps: list[str]
    item_steps: list[StepDefinitionRecord]
    lifecycle_events: dict[str, list[HandlerRecord]]
    source: str = Field(description="app, user, package or code.")
    origin: str = Field(description="The file, or where else it comes from.")


class ParameterSetRecord(BaseModel):
    """A parameter set with its values."""

    id: str
    name: str | None
    meta: dict[str, Any]
    steps: list[str]
    config: dict[str, dict[str, Any]]
    source: str
    origin: str


class Uploaded(BaseModel):
    """The stored upload."""

    message: str
    id: str
    file_path: str


class DeleteResult(BaseModel):
    """What was removed."""

    message: str
    id: str


class GroupDeleteResult(BaseModel):
    """What was removed."""

    message: str
    statistics: dict[str, int]


class Released(BaseModel):
    """Whether the lock was held."""

    resource_key: str
    released: bool


class UpdateResult(BaseModel):
    """The number of runs that were changed."""

    message: str
    runs: int


def page_of(items: Sequence[Mapping[str, Any]], total: int, page: int, rows: int) -> dict[str, Any]:
    """A page in the form of Soliplex Ingester."""
    pages = -(-total // rows)
    return {
        "items": items,
        "total": total,
        "page": page,
        "rows_per_page": rows,
        "total_pages": pages,
    }


def _status(error: LexigramError) -> int | None:
    found = (STATUSES.get(kind) for kind in type(error).__mro__)
    return next((status for status in found if status is not None), None)


def _answer_error(request: Request, error: LexigramError, status: int) -> Response:
    if status >= 500:
        logger.error(
            "a request failed", method=request.method, path=request.url.path, exc_info=error
        )
    message = error.message if status < 500 else "durable runs are not available; see the log"
    answer = ErrorAnswer(
        error=message,
        code=error.code,
        hint=error.hint if status < 500 else None,
        details=dict(error.details) or None if status < 500 else None,
    )
    return JSONResponse(answer.model_dump(mode="json", exclude_none=True), status)


def _answer_invalid(error: RequestValidationError) -> Response:
    problems = [
        {"path": ".".join(map(str, item["loc"])), "message": item["msg"], "type": item["type"]}
        for item in error.errors()
    ]
    text = "; ".join(f"{item['path']}: {item['message']}" for item in problems)
    answer = ErrorAnswer(error=text, code=RequestInvalidError.code, details={"errors": problems})
    return JSONResponse(answer.model_dump(mode="json", exclude_none=True), 422)
