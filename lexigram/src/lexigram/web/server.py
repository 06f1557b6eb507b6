"""The socket and the server on it: bound where allowed, drained when told, no signals of its own."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from anyio.abc import TaskStatus
from attrs import frozen
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from lexigram.web.auth import Guard
from lexigram.web.config import WebConfig
from lexigram.web.errors import WebBindError
from lexigram.web.gate import GONE_KEY


@frozen(kw_only=True)
class Address:
    """Where the host listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """``http://host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


async def bind(config: WebConfig, guard: Guard) -> socket.socket:
    """A socket on the address; WebBindError before binding when it must not be served."""
    family, place = await _resolved(config)
    if not guard.is_needed and not _is_loopback(place[0]):
        raise WebBindError(
            f"{config.host} can be reached from other machines, and there are no API keys",
            details={"host": config.host, "port": config.port},
            hint="set web.api_keys or web.trusted_proxies, or listen on 127.0.0.1",
        )
    # asyncio switches Nagle's delay off only for sockets that say they are TCP; with it, a
    # response in two writes waits 40 ms for the client's acknowledgement.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setblocking(False)
        made.bind(place)
    except OSError as error:
        made.close()
        raise WebBindError(
            f"cannot listen on {config.host}:{config.port}: {error.strerror}",
            details={"host": config.host, "port": config.port},
            hint="choose another web.port (0: one that is free) or web.host",
        ) from error
    return made


def address_of(bound: socket.socket) -> Address:
    """Where a socket listens."""
    host, port, *_ = bound.getsockname()
    return Address(host=host, port=port)


class Server(uvicorn.Server):
    """uvicorn as a part of an application, which has the signals and decides when to stop."""

    def __init__(self, app: Any, config: WebConfig) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                interface="asgi3",
                http=_Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=config.keep_alive,
                timeout_graceful_shutdown=config.drain_timeout,
            )
        )
        self._finished = anyio.Event()
        self._task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED

    async def run_on(
        self, bound: socket.socket, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until ``stop``; started once connections are accepted.

        Cancelling does not end it: it would drop the requests that ``stop`` lets finish.
        """
        self._task_status = task_status
        try:
            with anyio.CancelScope(shield=True):
                await self.serve([bound])
        finally:
            self._finished.set()

    async def stop(self) -> None:
        """Close the port, let requests end within ``drain_timeout``, cancel the rest."""
        self.should_exit = True
        await self._finished.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell when connections are accepted."""
        await super().startup(sockets)
        self._task_status.started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: process signals belong to lexigram.app.signals."""
        yield


class _Watching(asyncio.Protocol):
    """Tells a request that its client has gone away, as soon as the connection is lost."""

    if TYPE_CHECKING:
        cycle: Any

    def connection_lost(self, exc: Exception | None) -> None:
        cycle = self.cycle
        super().connection_lost(exc)
        if cycle is not None and not cycle.response_complete:
            tell = cycle.scope.get(GONE_KEY)
            if tell is not None:
                tell()


_Connection: Any = type("Connection", (_Watching, AutoHTTPProtocol), {})


async def _resolved(config: WebConfig) -> tuple[int, Any]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise WebBindError(
            f"there is no address for {config.host}: {error.strerror}",
            details={"host": config.host},
            hint="set web.host to an address of this machine, such as 127.0.0.1",
        ) from error
    # localhost is both; most clients try 127.0.0.1.
    found.sort(key=lambda item: item[0] != socket.AF_INET)
    family, _, _, _, place = found[0]
    return family, place


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
