"""The socket and the server on it: bound where allowed, drained on request, no signals of its own."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import socket
from collections.abc import Iterator
from typing import Any, Final

import anyio
import uvicorn
from anyio.abc import TaskStatus
from attrs import define, frozen
from uvicorn.protocols.http.h11_impl import H11Protocol

from lexigram.web.auth import Guard
from lexigram.web.config import WebConfig
from lexigram.web.errors import TooManyConnectionsError, WebBindError
from lexigram.web.gate import GONE_KEY
from lexigram.web.problems import PROBLEM_TYPE, Problem

# A client that is still sending when it is answered may read the answer before it is cut off.
LINGER_SECONDS: Final = 5.0

# Connections that wait to be accepted; uvicorn's own number.
_BACKLOG: Final = 2048
_log = logging.getLogger(__name__)


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
    """A listening socket; WebBindError before binding when the address must not be served.

    Connections wait until a server accepts them. It listens from the beginning: two sockets that
    do not listen can be bound to one address.
    """
    family, place = await _resolve_address(config)
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
        made.listen(_BACKLOG)
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
                http=_connection_class(config),
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

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self.server_state.connections)

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


@define
class _Connections:
    """What the connections of one server share."""

    config: WebConfig
    is_full: bool = False


class _Connection(H11Protocol):
    """What uvicorn leaves open: limits of time and number, and word of a lost client.

    One clock runs while the client has to send something: the headers of a request, or the rest
    of a body after the answer. Time limits of a body that the application reads are the gate's.
    A second one runs while much of a response waits to be taken, and while a closed connection has
    anything to send: what is never taken would keep it open for ever.
    h11 also where uvicorn would choose httptools, which bounds no headers.
    """

    shared: _Connections
    _clock: asyncio.TimerHandle | None = None
    _sending_clock: asyncio.TimerHandle | None = None
    _unsent: float = 0  # bytes when that clock started; infinite once the buffer was nearly empty
    cycle: Any  # the request at hand; None before the first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        shared = self.shared
        if len(self.connections) <= shared.config.max_connections:
            self._start_clock(shared.config.header_timeout)
            return
        if not shared.is_full:
            shared.is_full = True
            _log.warning(
                "%d connections are open, more are refused: see web.max_connections",
                shared.config.max_connections,
            )
        self.transport.write(_REFUSAL)
        self._close()

    def _should_upgrade(self) -> bool:
        return (
            False  # answered as if nothing was asked; uvicorn would also log two warnings for each
        )

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.transport.is_closing():
            self._close()
        elif self.cycle is not before:  # the headers of a request have arrived
            self._stop_clock()
        elif self._clock is None and before.response_complete and not before.more_body:
            self._start_clock(self.shared.config.header_timeout)

    def on_response_complete(self) -> None:
        cycle = self.cycle
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif self.cycle is cycle and cycle.response_complete and cycle.more_body:
            self._start_clock(LINGER_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unsent = math.inf

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        if self._sending_clock is not None:
            self._sending_clock.cancel()
        cycle = self.cycle
        super().connection_lost(exc)
        if len(self.connections) < self.shared.config.max_connections:
            self.shared.is_full = False
        if cycle is not None and not cycle.response_complete:
            tell = cycle.scope.get(GONE_KEY)
            if tell is not None:
                tell()

    def _start_clock(self, seconds: float) -> None:
        self._stop_clock()
        self._clock = self.loop.call_later(seconds, self._close)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _close(self) -> None:
        self.transport.close()
        self._watch_sending()

    def _watch_sending(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent and self._sending_clock is None:
            self._unsent = unsent
            seconds = self.shared.config.send_timeout
            self._sending_clock = self.loop.call_later(seconds, self._check_sending)

    def _check_sending(self) -> None:
        self._sending_clock = None
        if self.transport.get_write_buffer_size() < self._unsent:
            self._watch_sending()
        else:
            self.transport.abort()


def _connection_class(config: WebConfig) -> type[_Connection]:
    """A class per server: uvicorn makes the connections, and gives them nothing of ours."""
    return type("Connection", (_Connection,), {"shared": _Connections(config)})


def _refusal() -> bytes:
    """Written before anything is read: a request costs more than the refusal of a connection."""
    problem = Problem(
        title="Service Unavailable",
        status=503,
        code=TooManyConnectionsError.code,
        detail="too many connections are open; try again later",
    )
    body = problem.model_dump_json(exclude_none=True).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\n"
        f"Content-Type: {PROBLEM_TYPE}\r\nContent-Length: {len(body)}\r\n"
        "Retry-After: 1\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


_REFUSAL: Final = _refusal()


async def _resolve_address(config: WebConfig) -> tuple[int, Any]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, ValueError) as error:  # ValueError: a name that cannot be one
        raise WebBindError(
            f"there is no address for {config.host!r}: {getattr(error, 'strerror', error)}",
            details={"host": config.host},
            hint="set web.host to an address of this machine, such as 127.0.0.1",
        ) from error
    # localhost is both; most clients try 127.0.0.1.
    found.sort(key=lambda item: item[0] != socket.AF_INET)
    family, _, _, _, place = found[0]
    return family, place


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
