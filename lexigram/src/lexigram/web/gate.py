"""What every request passes: id, trace, caller, size, and a scope of the container around it."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import nullcontext
from functools import partial
from secrets import token_hex
from typing import Any, Final

import anyio
from starlette.exceptions import HTTPException

from lexigram.concurrency import CallTimeoutError, as_failure
from lexigram.contracts.observability.metrics import MetricsProtocol, NoOpMetrics
from lexigram.contracts.observability.tracing import NoOpTracer, TracerProtocol
from lexigram.di.container import Resolver
from lexigram.di.scope import EXITS
from lexigram.di.scope import Scope as ContainerScope
from lexigram.web.auth import Guard, is_cross_site, is_local_name
from lexigram.web.config import WebConfig
from lexigram.web.errors import (
    BodyTooLargeError,
    CrossSiteError,
    HeadersTooLargeError,
    HostRefusedError,
    RequestTimeoutError,
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
# The cancel scope around an endpoint that has not begun to answer.
WAITING_KEY: Final = "lexigram.waiting"
# Everybody may ask these, so that probes need no key.
PUBLIC_PREFIX: Final = "/health/"
# Labels of metrics: what else a client calls a method is not in them (OpenTelemetry's name).
METHODS: Final = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
)
OTHER_METHOD: Final = "_OTHER"
# The server bounds what is incomplete; what arrives at once may be larger.
MAX_HEAD_BYTES: Final = 16 * 1024
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
        self.config = config
        self._guard = guard
        self._problems = problems
        self._tracer = None if isinstance(tracer, NoOpTracer) else tracer
        self._metrics = None if isinstance(metrics, NoOpMetrics) else metrics
        self._idle: anyio.Event | None = None  # exists while there is a waiter
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; returns when its scope is torn down."""
        self.in_flight += 1
        try:
            if self._tracer is None and self._metrics is None:
                await _Exchange(self, scope, receive, send).run()
            else:
                await self._observe(_Exchange(self, scope, receive, send))
        finally:
            self.in_flight -= 1
            if self.in_flight == 0 and self._idle is not None:
                self._idle.set()

    async def idle(self) -> None:
        """Wait until no request is in flight."""
        while self.in_flight:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def _observe(self, exchange: _Exchange) -> None:
        began = time.perf_counter()
        scope, method = exchange.scope, exchange.scope["method"]
        if method not in METHODS:
            method = OTHER_METHOD
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
        if _head_bytes(scope) > MAX_HEAD_BYTES:
            raise HeadersTooLargeError(f"path and headers are larger than {MAX_HEAD_BYTES} bytes")
        guard = self._guard
        peer = scope.get("client")
        caller = guard.caller(headers, peer[0] if peer else None) if guard.is_needed else None
        scope.setdefault("state", {})["caller"] = caller
        if guard.is_needed:
            if caller is None and not scope["path"].startswith(PUBLIC_PREFIX):
                raise UnauthenticatedError("a valid key is needed: X-API-Key, or a bearer token")
        elif not is_local_name(headers.get(b"host")):
            raise HostRefusedError("a host without keys is called as localhost only")
        if is_cross_site(scope["method"], headers, caller):
            raise CrossSiteError("a page of another site may not change anything here")
        length = headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 18 or int(length) > self.config.max_body_bytes):
            raise _too_large(self.config.max_body_bytes)

    async def respond(self, scope: Scope, error: Exception, send: Send) -> None:
        """Answer with a problem, without going further."""
        await self._problems.response(scope, error)(scope, _nothing, send)

    async def enter(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Run the application in a scope of the container; False when the client went away."""
        opened = self._container.scope()
        await opened.__aenter__()
        scope[SCOPE_KEY] = opened
        error: BaseException | None = None
        late: CallTimeoutError | None = None
        limit, waiting = self.config.handler_timeout, anyio.CancelScope()
        if limit is not None:
            waiting.deadline = anyio.current_time() + limit
            scope[WAITING_KEY] = waiting
        try:
            with waiting:
                if self.config.cancel_on_disconnect:
                    scope[GONE_KEY] = partial(_cancel, waiting)
                await self._app(scope, receive, send)
        except BaseException as raised:
            error = raised
            raise
        finally:
            if limit is not None and waiting.cancelled_caught and waiting.deadline < math.inf:
                late = CallTimeoutError(f"{scope['method']} {scope['path']}", limit)
            if EXITS in opened.cache:  # most requests build nothing that has to be torn down
                await _tear_down(opened, error or late or _reason(scope, waiting))
        if late is not None:
            raise late
        return not waiting.cancelled_caught


class _Exchange:
    """One request and what becomes of it."""

    __slots__ = (
        "_body_ended",
        "_gate",
        "_receive",
        "_seconds_left",
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
        self._taken = 0
        self._seconds_left = gate.config.body_timeout
        self._body_ended = False
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
        try:
            if not await gate.enter(scope, self.receive, self.send):
                self.status = CLIENT_GONE
        except BaseException as error:  # the end of the request
            failure = as_failure(error)
            if failure is None:
                # By the server, when the time to drain is over; the answer says why.
                if not self.status:
                    with anyio.CancelScope(shield=True):
                        await gate.respond(scope, ShuttingDownError("cancelled"), self.send)
                raise
            if not self.status:
                # FastAPI answers an Exception only, and nothing that was cancelled for its time.
                scope[ERROR_KEY] = failure
                await gate.respond(scope, failure, self.send)
            else:
                self._note_failure(failure)

    async def send(self, message: Message) -> None:
        """Note the status, and add the headers every response has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            waiting = self.scope.get(WAITING_KEY)
            if waiting is not None:
                waiting.deadline = math.inf
            added = [(b"x-request-id", self.scope[REQUEST_ID_KEY].encode())]
            added += [(k.encode(), v.encode()) for k, v in self.trace_headers.items()]
            message["headers"] = [*message.get("headers", ()), *added]
        await self._send(message)

    async def receive(self) -> Message:
        """Hand on what arrives, within the limits of size and time.

        What counts is what arrives, never what was announced: a request may announce two lengths.
        Only time in which the application waits for the client counts.
        """
        if self._body_ended:
            return await self._receive()  # until the client goes away
        message, began = None, anyio.current_time()
        with anyio.move_on_after(self._seconds_left):
            message = await self._receive()
        config = self._gate.config
        # FastAPI lets an HTTPException pass, and no other.
        if message is None:
            raise HTTPException(408) from RequestTimeoutError(
                f"the body did not arrive within {config.body_timeout:g} s"
            )
        self._seconds_left -= anyio.current_time() - began
        self._body_ended = not message.get("more_body", False)
        self._taken += len(message.get("body", b""))
        if self._taken > config.max_body_bytes:
            raise HTTPException(413) from _too_large(config.max_body_bytes)
        return message

    def _note_failure(self, error: Exception) -> None:
        """What FastAPI raises again for the server to see, or what came too late to be answered."""
        if error is self.scope.get(ERROR_KEY):
            return  # logged with its error_id when it was answered
        _log.error(
            "%s %s failed after its response had begun: request_id=%s",
            self.scope["method"],
            self.scope["path"],
            self.scope[REQUEST_ID_KEY],
            exc_info=error,
        )


def _cancel(waiting: anyio.CancelScope) -> None:
    """The client has gone away: whatever the time."""
    waiting.deadline = math.inf
    waiting.cancel()


async def _tear_down(opened: ContainerScope, error: BaseException | None) -> None:
    with anyio.CancelScope(shield=True):
        await opened.close(error)


def _reason(scope: Scope, waiting: anyio.CancelScope) -> BaseException | None:
    """What an endpoint raised was answered already; its resources must see it all the same."""
    if waiting.cancelled_caught:
        return anyio.BrokenResourceError("the client has gone away")
    raised: BaseException | None = scope.get(ERROR_KEY)
    return raised


def _head_bytes(scope: Scope) -> int:
    fields = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return fields + len(scope["path"]) + len(scope["query_string"])


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is larger than {limit} bytes")


def _route_of(scope: Scope) -> str:
    """The route as it is written, or one word for all that is unknown: each is a series."""
    route = scope.get("route")
    return getattr(route, "path_format", None) or getattr(route, "path", None) or "(none)"


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
