"""Read the body of a request as JSON, as a form or in parts, into one pydantic model.

FastAPI's own forms need another library and allow one kind of body per endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from email.message import Message
from email.utils import collapse_rfc2231_value
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError

from lexigram.workflow.durable.errors import BodyTypeError, BodyUnreadableError

M = TypeVar("M", bound=BaseModel)

_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_PARTS = "multipart/form-data"


class Upload(BaseModel):
    """A file in a body of several parts."""

    model_config = ConfigDict(extra="forbid")

    filename: str
    content_type: str | None
    content: bytes


def body_of(model: type[M]) -> Callable[[Request], Awaitable[M]]:
    """A dependency that gives the body as the model; what the body lacks the query may have."""

    async def read(request: Request) -> M:
        values: dict[str, Any] = {**request.query_params, **await _values(request)}
        try:
            return model.model_validate(values)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise RequestValidationError(
                [{**item, "loc": ("body", *item["loc"])} for item in found]
            ) from error

    return read


def body_docs(model: type[BaseModel], *, parts: bool = False) -> dict[str, Any]:
    """The OpenAPI description of a body read by ``body_of``."""
    schema = model.model_json_schema()
    kinds = [_PARTS] if parts else [_JSON, _FORM]
    content = {kind: {"schema": schema} for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}


def json_object(value: Any) -> Any:
    """For fields that hold an object: a form has it as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from error


async def _values(request: Request) -> dict[str, Any]:
    kind, options = _content_type(request.headers.get("content-type", ""))
    body = await request.body()
    if not body:
        return {}
    if kind == _PARTS:
        return dict(_parts(body, options.get("boundary", "")))
    if kind == _FORM:
        return _form(body)
    if kind != _JSON and not (kind.startswith("application/") and kind.endswith("+json")):
        # A page of another site can send text, and nothing, but no JSON.
        raise BodyTypeError(
            f"a body of the type {kind!r} is not read",
            hint=f"send Content-Type: {_JSON}, {_FORM} or {_PARTS}",
        )
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BodyUnreadableError(
            f"the body is not JSON: {error}",
            hint=f"send JSON, or a form with Content-Type: {_FORM}",
        ) from error
    if not isinstance(value, dict):
        raise BodyUnreadableError("the body is no JSON object", hint='send {"name": value}')
    return cast("dict[str, Any]", value)


def _form(body: bytes) -> dict[str, Any]:
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=1000))
    except ValueError as error:
        raise BodyUnreadableError(f"the body is no form: {error}") from error


def _parts(body: bytes, boundary: str) -> list[tuple[str, Any]]:
    """RFC 7578: every part with its name, as text or as a file."""
    if not boundary or not boundary.isascii():
        raise BodyUnreadableError(
            "the Content-Type names no boundary of ASCII characters",
            hint="send Content-Type: multipart/form-data; boundary=...",
        )
    line = b"--" + boundary.encode()
    pieces = (b"\r\n" + body).split(b"\r\n" + line)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise BodyUnreadableError(
            "the body ends in the middle", hint="send all parts and the closing boundary"
        )
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> tuple[str, Any]:
    head, gap, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    if not gap:
        raise BodyUnreadableError("a part of the body has no headers")
    headers: dict[str, str] = {}
    for text in head.decode("utf-8", "replace").split("\r\n"):
        name, _, value = text.partition(":")
        headers[name.strip().lower()] = value.strip()
    _, options = _content_type(headers.get("content-disposition", ""))
    if "name" not in options:
        raise BodyUnreadableError("a part of the body has no name")
    if "filename" in options:
        kind = headers.get("content-type")
        file = Upload(filename=options["filename"], content_type=kind, content=content)
        return options["name"], file
    try:
        return options["name"], content.decode()
    except UnicodeDecodeError as error:
        raise BodyUnreadableError(
            f"the part {options['name']!r} is not UTF-8 text",
            hint="a file needs a filename in its Content-Disposition",
        ) from error


def _content_type(text: str) -> tuple[str, dict[str, str]]:
    """``kind; name=value; ...``; the library of mails reads quotes and encodings."""
    message = Message()
    message["content-type"] = text
    found = message.get_params(failobj=[("", "")])
    return found[0][0].strip().lower(), {
        name.lower(): collapse_rfc2231_value(value) for name, value in found[1:]
    }
