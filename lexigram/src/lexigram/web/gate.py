"""What every request passes: id, trace, caller, size, and a scope of the container around it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import nullcontext
from secrets import token_hex
from typing import Any, Final

import anyio
from starlette.exceptions import HTTPException

from lexigram.concurrency import as_failure
from lexigram.contracts.observability.metrics import MetricsProtocol, NoOpMetrics
from lexigram.contracts.observability.tracing import NoOpTracer, TracerProtocol
from lexigram.di.container import Resolver
from lexigram.di.scope import EXITS
from lexigram.di.scope import Scope as ContainerScope
from lexigram.web.auth import Guard, is_local_name
from lexigram.web.config import WebConfig
from lexigram.web.errors import (
    BodyTooLargeError,
    HostRefusedError,
    ShuttingDownError,
    UnauthenticatedError,
    WebError,
)
from lexigram.web.inject import SCOPE_KEY
from lexigram.web.problems import ERROR_KEY, REQUEST_ID_KEY, Problems

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Called by the connection when the client has gone away.
GONE_KEY: Final = "lexigram.gone"
# Everybody may ask these, so that probes need no key.
PUBLIC_PREFIX: Final = "/health/"
# What a log says of a request whose client did not wait; no response is sent with it.
CLIENT_GONE: Final = 499

_REQUEST_ID = re.compile(rb"[\w.:-]{1,128}")
_log = logging.getLogger(__name__)


class Gate:
    """The outermost part of the host: an ASGI application around FastAPI."""

    def __init__(
        self,
        app: App,
        *,
        container: Resolver,
        config: WebConfig,
        guard: Guard,
        problems: Problems,
        tracer: TracerProtocol,
        metrics: MetricsProtocol,
    ) -> None:
        self._app = app
        self._container = container
        self._config = config
        self._guard = guard
        self._problems = problems
        self._tracer = None if isinstance(tracer, NoOpTracer) else tracer
        self._metrics = None if isinstance(metrics, NoOpMetrics) else metrics
        self._idle: anyio.Event | None = None  # there while somebody waits for it
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; returns when its scope is torn down."""
        self.in_flight += 1
        try:
            if self._tracer is None and self._metrics is None:
                await _Exchange(self, scope, receive, send).run()
            else:
                await self._observed(_Exchange(self, scope, receive, send))
        finally:
            self.in_flight -= 1
            if self.in_flight == 0 and self._idle is not None:
                self._idle.set()

    async def idle(self) -> None:
        """Wait until no request is in flight."""
        while self.in_flight:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def _observed(self, exchange: _Exchange) -> None:
        began = time.perf_counter()
        scope, method = exchange.scope, exchange.scope["method"]
        span = None
        if self._tracer is not None:
            carrier = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
            facts = {"http.request.method": method, "url.path": scope["path"]}
            span = self._tracer.start_span(
                f"HTTP {method}", facts, self._tracer.extract_context(carrier)
            )
        with span if span is not None else nullcontext():
            if self._tracer is not None:
                self._tracer.inject_context(exchange.trace_headers)
            await exchange.run()
            route = _route_of(scope)
            if span is not None:
                span.set_attribute("http.route", route)
                span.set_attribute("http.response.status_code", exchange.status)
                if exchange.status >= 500:
                    span.set_status("error")
        if self._metrics is not None:
            tags = {"method": method, "route": route, "status": str(exchange.status)}
            self._metrics.increment("web_requests", tags=tags)
            seconds = time.perf_counter() - began
            self._metrics.histogram("web_request_seconds", seconds, tags=tags)

    def admit(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Raise for a request that must not go further; note who sent it."""
        guard = self._guard
        peer = scope.get("client")
        caller = guard.caller(headers, peer[0] if peer else None) if guard.is_needed else None
        scope.setdefault("state", {})["caller"] = caller
        if guard.is_needed:
            if caller is None and not scope["path"].startswith(PUBLIC_PREFIX):
                raise UnauthenticatedError("a valid key is needed: X-API-Key, or a bearer token")
        elif not is_local_name(headers.get(b"host")):
            raise HostRefusedError("a host without keys is called as localhost only")
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._config.max_body_bytes:
            raise _too_large(self._config.max_body_bytes)

    async def respond(self, scope: Scope, error: Exception, send: Send) -> None:
        """Answer with a problem, without going further."""
        await self._problems.response(scope, error)(scope, _nothing, send)

    async def enter(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Run the application in a scope of the container; False when the client went away."""
        opened = self._container.scope()
        await opened.__aenter__()
        scope[SCOPE_KEY] = opened
        error: BaseException | None = None
        waiting = anyio.CancelScope()
        try:
            with waiting:
                if self._config.cancel_on_disconnect:
                    scope[GONE_KEY] = waiting.cancel
                await self._app(scope, receive, send)
        except BaseException as raised:
            error = raised
            raise
        finally:
            if EXITS in opened.cache:  # most requests build nothing that has to be torn down
                await _tear_down(opened, error or _reason(scope, waiting))
        return not waiting.cancelled_caught


class _Exchange:
    """One request and what becomes of it."""

    __slots__ = (
        "_gate",
        "_limit",
        "_receive",
        "_send",
        "_taken",
        "scope",
        "status",
        "trace_headers",
    )

    def __init__(self, gate: Gate, scope: Scope, receive: Receive, send: Send) -> None:
        self._gate = gate
        self.scope = scope
        self._receive = receive
        self._send = send
        self._limit = gate._config.max_body_bytes  # noqa: SLF001 - two halves of one thing
        self._taken = 0
        self.status = 0
        self.trace_headers: dict[str, str] = {}

    async def run(self) -> None:
        gate, scope = self._gate, self.scope
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        known = _REQUEST_ID.fullmatch(given)
        scope[REQUEST_ID_KEY] = given.decode("ascii") if known else token_hex(16)
        try:
            gate.admit(scope, headers)
        except WebError as error:
            await gate.respond(scope, error, self.send)
            return
        # The length that a request announces is kept to by the server.
        receive = self._receive if b"content-length" in headers else self.receive
        try:
            if not await gate.enter(scope, receive, self.send):
                self.status = CLIENT_GONE
        except BaseException as error:  # the end of the request
            failure = as_failure(error)
            if failure is None:
                # By the server, when the time to drain is over; the client is told why.
                if not self.status:
                    with anyio.CancelScope(shield=True):
                        await gate.respond(scope, ShuttingDownError("cancelled"), self.send)
                raise
            if failure is not error and not self.status:
                # FastAPI answers nothing but an Exception: SystemExit and the like come here.
                scope[ERROR_KEY] = failure
                await gate.respond(scope, failure, self.send)
            else:
                self._failed(failure)

    async def send(self, message: Message) -> None:
        """Note the status, and add the headers every response has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            added = [(b"x-request-id", self.scope[REQUEST_ID_KEY].encode())]
            added += [(k.encode(), v.encode()) for k, v in self.trace_headers.items()]
            message["headers"] = [*message.get("headers", ()), *added]
        await self._send(message)

    async def receive(self) -> Message:
        """Count a body of unknown length."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._taken += len(message.get("body", b""))
            if self._taken > self._limit:
                error = _too_large(self._limit)
                raise HTTPException(413) from error  # FastAPI lets it pass, and no other
        return message

    def _failed(self, error: Exception) -> None:
        """What FastAPI raises again for the server to see, or what came too late to be answered."""
        if error is self.scope.get(ERROR_KEY):
            return  # told with its error_id when it was answered
        _log.error(
            "%s %s failed after its response had begun: request_id=%s",
            self.scope["method"],
            self.scope["path"],
            self.scope[REQUEST_ID_KEY],
            exc_info=error,
        )


async def _tear_down(opened: ContainerScope, error: BaseException | None) -> None:
    with anyio.CancelScope(shield=True):
        await opened.close(error)


def _reason(scope: Scope, waiting: anyio.CancelScope) -> BaseException | None:
    """What an endpoint raised was answered already; its resources must see it all the same."""
    if waiting.cancelled_caught:
        return anyio.BrokenResourceError("the client has gone away")
    raised: BaseException | None = scope.get(ERROR_KEY)
    return raised


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is larger than {limit} bytes")


def _route_of(scope: Scope) -> str:
    """The route as it is written, or one word for all that is unknown: each is a series."""
    route = scope.get("route")
    return getattr(route, "path_format", None) or getattr(route, "path", None) or "(none)"


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
