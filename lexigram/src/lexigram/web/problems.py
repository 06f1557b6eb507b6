"""Every error as ``application/problem+json`` (RFC 9457), with our codes and no inside facts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lexigram.concurrency import CallTimeoutError
from lexigram.contracts.core.errors import (
    DomainError,
    InfrastructureError,
    LexigramError,
    NotFoundError,
)
from lexigram.contracts.core.idempotency import IdempotencyError
from lexigram.contracts.core.lock import LockConflictError
from lexigram.contracts.data.blobs import BlobNotFoundError, BlobPathError
from lexigram.contracts.data.sql.database import UniqueViolationError
from lexigram.contracts.infra.resilience.errors import ResilienceError
from lexigram.web.errors import (
    BodyTooLargeError,
    CrossSiteError,
    HeadersTooLargeError,
    HostRefusedError,
    RequestInvalidError,
    RequestTimeoutError,
    ShuttingDownError,
    TooManyConnectionsError,
    UnauthenticatedError,
    WebError,
)

PROBLEM_TYPE: Final = "application/problem+json"
# Where handlers leave the error for the gate: resources of the request must see it.
ERROR_KEY: Final = "lexigram.error"
REQUEST_ID_KEY: Final = "lexigram.request_id"

# The nearest class counts; what is not listed is 500.
STATUSES: Final[Mapping[type[Exception], int]] = {
    DomainError: 400,
    NotFoundError: 404,
    BlobNotFoundError: 404,
    BlobPathError: 400,
    IdempotencyError: 409,
    LockConflictError: 409,
    UniqueViolationError: 409,
    ResilienceError: 503,
    InfrastructureError: 503,
    UnauthenticatedError: 401,
    HostRefusedError: 403,
    CrossSiteError: 403,
    BodyTooLargeError: 413,
    HeadersTooLargeError: 431,
    RequestTimeoutError: 408,
    RequestInvalidError: 422,
    TooManyConnectionsError: 503,
    ShuttingDownError: 503,
    CallTimeoutError: 504,
}
# Their message is written for the one who asked; others may name tables, hosts and files.
_PUBLIC = (DomainError, WebError, BlobNotFoundError, BlobPathError)

_log = logging.getLogger(__name__)


class FieldProblem(BaseModel):
    """What is wrong with one part of a request."""

    path: str = Field(description="Where: body.items.0.price, query.page, ...")
    message: str
    type: str = Field(description="What kind of problem, for programs.")


class Problem(BaseModel):
    """An error as RFC 9457 has it, with the code of Lexigram."""

    type: str = Field(default="about:blank", description="Stands for the kind of problem.")
    title: str = Field(description="The kind of problem in a few words.")
    status: int
    detail: str | None = Field(default=None, description="What happened this time.")
    instance: str | None = Field(default=None, description="The path that was asked for.")
    code: str = Field(description="A code of Lexigram, or HTTP_ and the status.")
    request_id: str | None = Field(default=None, description="The same as header X-Request-ID.")
    error_id: str | None = Field(
        default=None, description="For errors of the server: what to look for in its log."
    )
    errors: list[FieldProblem] | None = Field(default=None, description="What is wrong where.")
    details: dict[str, Any] | None = Field(default=None, description="Facts about the problem.")


class Problems:
    """Turns exceptions into responses; ``statuses`` adds to the table, or changes it."""

    def __init__(self, statuses: Mapping[type[Exception], int] | None = None) -> None:
        self._statuses = {**STATUSES, **(statuses or {})}

    def handlers(self) -> dict[Any, Any]:
        """What FastAPI calls for which exception."""
        given = [kind for kind in self._statuses if not issubclass(kind, LexigramError)]
        return {
            **dict.fromkeys(given, self.of_error),
            LexigramError: self.of_error,
            HTTPException: self.of_http,
            RequestValidationError: self.of_request,
            Exception: self.of_error,
        }

    async def of_error(self, request: Request, error: Exception) -> Response:
        """Any exception, by the table; 500 for those that are not in it."""
        request.scope[ERROR_KEY] = error
        return self.response(request.scope, error)

    async def of_http(self, request: Request, error: Exception) -> Response:
        """An HTTPException of FastAPI or of an endpoint."""
        assert isinstance(error, HTTPException)
        request.scope[ERROR_KEY] = error
        if isinstance(error.__cause__, WebError):
            return self.response(request.scope, error.__cause__)
        status = error.status_code
        detail: Any = error.detail  # FastAPI allows anything that JSON has
        text = detail if isinstance(detail, str) else None
        if status == 405 and error.headers and (allowed := error.headers.get("Allow")):
            text = f"{request.method} is not allowed here: use {allowed}"
        problem = _problem(request.scope, status, f"HTTP_{status}", text)
        if text is None:
            problem.details = {"detail": to_jsonable_python(detail, fallback=str)}
        return _response(problem, error.headers)

    async def of_request(self, request: Request, error: Exception) -> Response:
        """A request that does not fit the endpoint."""
        assert isinstance(error, RequestValidationError)
        request.scope[ERROR_KEY] = error
        problem = _problem(
            request.scope, 422, RequestInvalidError.code, "the request does not fit the endpoint"
        )
        problem.type = _type_of(RequestInvalidError.code)
        # Never the input itself: it may hold a password that is merely too short.
        problem.errors = [
            FieldProblem(
                path=".".join(map(str, item["loc"])), message=item["msg"], type=item["type"]
            )
            for item in error.errors()
        ]
        return _response(problem)

    def response(self, scope: Mapping[str, Any], error: Exception) -> Response:
        """The response to an error, also outside FastAPI."""
        status = self._status(error)
        code = error.code if isinstance(error, LexigramError) else WebError.code
        text = error.message if isinstance(error, _PUBLIC) and status < 500 else None
        problem = _problem(scope, status, code, text)
        problem.type = _type_of(code)
        if isinstance(error, DomainError) and status < 500 and error.details:
            problem.details = to_jsonable_python(error.details, fallback=str)
        if status >= 500:
            problem.error_id = uuid4().hex
            problem.detail = "the server failed; its log tells more under the error_id"
            _tell(scope, problem, error)
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
        return _response(problem, headers)

    def _status(self, error: Exception) -> int:
        found = (self._statuses.get(kind) for kind in type(error).__mro__)
        return next((status for status in found if status is not None), 500)


def _tell(scope: Mapping[str, Any], problem: Problem, error: Exception) -> None:
    _log.error(
        "%s %s failed with %d: error_id=%s request_id=%s",
        scope.get("method"),
        scope.get("path"),
        problem.status,
        problem.error_id,
        problem.request_id,
        exc_info=error,
    )


def _problem(scope: Mapping[str, Any], status: int, code: str, detail: str | None) -> Problem:
    try:
        title = HTTPStatus(status).phrase
    except ValueError:
        title = "Error"
    return Problem(
        title=title,
        status=status,
        code=code,
        detail=detail,
        instance=scope.get("path"),
        request_id=scope.get(REQUEST_ID_KEY),
    )


def _type_of(code: str) -> str:
    return f"urn:lexigram:problem:{code}"


def _response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        problem.model_dump_json(exclude_none=True),
        status_code=problem.status,
        headers=headers,
        media_type=PROBLEM_TYPE,
    )
