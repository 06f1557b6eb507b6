"""The host: a running application as an ASGI application, and that served on a port."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from lexigram.app import Application
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.contracts.web import RouteContributorProtocol
from lexigram.observability.errors import MissingLibraryError
from lexigram.web.auth import Guard, check_keys
from lexigram.web.config import WebConfig
from lexigram.web.errors import WebBindError, WebError

try:
    from fastapi import APIRouter, FastAPI
    from fastapi.openapi.utils import get_openapi
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    from lexigram.web.gate import Gate
    from lexigram.web.probes import probes
    from lexigram.web.problems import PROBLEM_TYPE, Problem, Problems
    from lexigram.web.routes import LeftOut, RouteTable, installed_contributors
    from lexigram.web.server import Address, Server, address_of, bind
except ImportError as error:
    raise MissingLibraryError("the web host", "web") from error

# After drain_timeout requests are cancelled; their scopes get this long to be torn down.
LAST_CHANCE_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class WebHost:
    """Answers HTTP for one application; made by ``WebModule``.

    ``async with host.serving() as address`` accepts requests until the block is left, and then
    drains: readiness turns 503, the port is closed, requests end or are cancelled after
    ``drain_timeout``. ``host.asgi`` is the same without a server.
    """

    def __init__(
        self,
        app: Application,
        config: WebConfig,
        *,
        routers: Sequence[APIRouter] = (),
        contributors: Iterable[RouteContributorProtocol] = (),
        installed: bool = True,
        statuses: Mapping[type[Exception], int] | None = None,
    ) -> None:
        self._app = app
        self._routers = tuple(routers)
        self._contributors = tuple(contributors)
        self._installed = installed
        self._problems = Problems(statuses)
        self._gate: Gate | None = None
        self._server: Server | None = None
        self._left_out: list[LeftOut] = []
        self.config = config
        self.is_draining = False
        # Where it listens; None while it does not.
        self.address: Address | None = None

    @property
    def asgi(self) -> Gate:
        """The application as ASGI; made on first use, when the application runs."""
        if self._gate is None:
            if not self._app.is_running:
                raise WebError(
                    f'"{self._app.name}" is {self._app.state.value}; its routes are asked for '
                    "when it runs",
                    hint="use the host inside `async with app:`",
                )
            self._gate = self._build()
        return self._gate

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """Contributors whose routes are missing, and why."""
        return tuple(self._left_out)

    @property
    def in_flight(self) -> int:
        """Requests that are being answered."""
        return self._gate.in_flight if self._gate is not None else 0

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return self._server.connections if self._server is not None else 0

    @asynccontextmanager
    async def serving(
        self,
        *,
        host: str | None = None,
        port: int | None = None,
        bound: socket.socket | None = None,
    ) -> AsyncIterator[Address]:
        """Accept requests while the block lasts; ``host`` and ``port`` go before the configured.

        ``bound`` is a socket of ``listen``, where that had to happen before the application
        started; it is closed in any case.
        """
        gate = self.asgi
        if bound is None:
            bound = await listen(self.config, host=host, port=port)
        self.address = address_of(bound)
        failure: Exception | None = None
        try:
            async with self._lifespan(), anyio.create_task_group() as tasks:
                server = self._server = Server(gate, self.config)
                await tasks.start(server.run_on, bound)
                try:
                    yield self.address
                except Exception as raised:  # noqa: BLE001 - raised below, free of the group
                    failure = raised
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._drain(server, gate)
        finally:
            bound.close()
            self.address = self._server = None
        if failure is not None:
            raise failure

    def _build(self) -> Gate:
        container = self._app.container
        metrics = container.get(MetricsProtocol)
        guard = Guard(self.config)
        api = self._api()
        table = RouteTable(api, container)
        table.include("lexigram", [probes(self._app, metrics, guard, lambda: self.is_draining)])
        table.include("the application", self._routers)
        disabled = self.config.disabled_contributors
        table.contribute(self._contributors, disabled)
        if self._installed:
            table.contribute(installed_contributors(table), disabled)
        self._left_out = table.left_out
        self._api_app = api
        inner: Any = api
        if self.config.trusted_proxies:
            inner = ProxyHeadersMiddleware(inner, list(self.config.trusted_proxies))
        return Gate(
            inner,
            container=container,
            config=self.config,
            guard=guard,
            problems=self._problems,
            tracer=container.get(TracerProtocol),
            metrics=metrics,
        )

    def _api(self) -> FastAPI:
        failed = {"$ref": "#/components/schemas/Problem"}
        problem = {"description": "A problem", "content": {PROBLEM_TYPE: {"schema": failed}}}
        api = FastAPI(
            title=self._app.name,
            docs_url=None,  # its pages load scripts from elsewhere
            redoc_url=None,
            exception_handlers=self._problems.handlers(),
            responses={"default": problem},
        )
        api.openapi = lambda: self._openapi(api)  # type: ignore[method-assign]  # as FastAPI says
        return api

    def _openapi(self, api: FastAPI) -> dict[str, Any]:
        if api.openapi_schema is None:
            schema = get_openapi(title=api.title, version=api.version, routes=api.routes)
            parts = schema.setdefault("components", {})
            problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            parts.setdefault("schemas", {}).update(problem.pop("$defs"), Problem=problem)
            if self.config.api_keys:
                header = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
                parts["securitySchemes"] = {
                    "key": header,
                    "bearer": {"type": "http", "scheme": "bearer"},
                }
                schema["security"] = [{"key": []}, {"bearer": []}]
            api.openapi_schema = schema
        return api.openapi_schema

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        """What routers start and stop themselves."""
        async with self._api_app.router.lifespan_context(self._api_app):
            yield

    async def _drain(self, server: Server, gate: Gate) -> None:
        self.is_draining = True
        await anyio.sleep(self.config.drain_delay)
        await server.stop()
        with anyio.move_on_after(LAST_CHANCE_SECONDS):
            await gate.idle()
        if gate.in_flight:
            _log.error("%d requests did not end although they were cancelled", gate.in_flight)
        self.is_draining = False


async def listen(
    config: WebConfig, *, host: str | None = None, port: int | None = None
) -> socket.socket:
    """A listening socket where the configuration says, or ``host`` and ``port``.

    ConfigurationError when a key is none, WebBindError when the place must not or cannot be
    served; then nothing was bound.
    """
    check_keys(config)
    config = _at(config, host, port)
    return await bind(config, Guard(config))


def _at(config: WebConfig, host: str | None, port: int | None) -> WebConfig:
    from attrs import evolve

    changes: dict[str, Any] = {}
    if host is not None:
        changes["host"] = host
    if port is not None:
        changes["port"] = port
    try:
        return evolve(config, **changes) if changes else config
    except (TypeError, ValueError) as error:
        raise WebBindError(
            f"cannot listen on {config.host if host is None else host!r}:{port}: {error}",
            hint="give a host, and a port from 0 (one that is free) to 65535",
        ) from error
