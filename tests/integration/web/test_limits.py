"""What a client may take: bytes, time, connections; over real sockets, written byte by byte."""

import json
from contextlib import asynccontextmanager
from typing import Annotated

import anyio
import anyio.lowlevel
import pytest
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from lexigram.observability import ObservabilityConfig, ObservabilityModule
from lexigram.testing import wait_until
from lexigram.web import Inject, WebConfig, WebHost, server

HANG_GUARD = 60  # seconds
HEAD = b"POST /size HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def sizes(session_type):
    router = APIRouter()

    @router.post("/size")
    async def size(request: Request, session: Annotated[session_type, Inject()]) -> int:
        return len(await request.body())

    return router


@asynccontextmanager
async def connected(app):
    address = app.container.get(WebHost).address
    with anyio.fail_after(HANG_GUARD):
        async with await anyio.connect_tcp(address.host, address.port) as stream:
            yield stream


async def receive(stream):
    """One response: its status and its JSON."""
    text = b""
    while b"\r\n\r\n" not in text:
        text += await stream.receive()
    head, _, body = text.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields[b"content-length"]):
        body += await stream.receive()
    return int(head.split()[1]), json.loads(body)


async def is_closed(stream):
    """True once the other end has closed the connection."""
    try:
        while True:
            await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return True


async def drip(stream, piece):
    """Send the piece again and again until the other end no longer takes it."""
    try:
        while True:
            await stream.send(piece)
            await anyio.sleep(0.01)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


def chunk(size):
    return b"%x\r\n" % size + b"x" * size + b"\r\n"


# Size.


async def test_a_body_is_counted_as_it_arrives_whatever_it_announces(serve, sizes, ledger_type):
    async with serve(sizes, config=WebConfig(port=0, max_body_bytes=1000)) as (_, app):
        async with connected(app) as stream:
            await stream.send(HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(11):
                await stream.send(chunk(100))
            status, problem = await receive(stream)
            assert (status, problem["code"]) == (413, "LEX_ERR_WEB_006")
        ledger = app.container.get(ledger_type)
        await wait_until(lambda: ledger.open == 0)


async def test_who_goes_on_sending_after_an_answer_is_cut_off(serve, sizes, monkeypatch):
    monkeypatch.setattr(server, "LINGER_SECONDS", 0.05)
    async with serve(sizes, config=WebConfig(port=0, max_body_bytes=1000)) as (_, app):
        async with connected(app) as stream:
            await stream.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(1001))
            assert (await receive(stream))[0] == 413
            await drip(stream, chunk(1))


async def test_a_connection_is_used_again_after_a_refused_body_that_was_sent_whole(serve, sizes):
    async with serve(sizes, config=WebConfig(port=0, max_body_bytes=1000)) as (_, app):
        async with connected(app) as stream:
            await stream.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(1001))
            assert (await receive(stream))[0] == 413
            await stream.send(b"0\r\n\r\n" + HEAD + b"Content-Length: 3\r\n\r\nabc")
            assert await receive(stream) == (200, 3)


async def test_headers_without_end_are_refused(serve, sizes):
    async with serve(sizes) as (_, app), connected(app) as stream:
        await stream.send(HEAD + b"X-Long: ")
        await drip(stream, b"x" * 4096)


@pytest.mark.parametrize(
    "head",
    [
        b"POST /size HTTP/1.1\r\nHost: localhost\r\nX-Long: "
        + b"x" * 16_000
        + b"\r\nX: "
        + b"y" * 1000,
        b"POST /size?" + b"q" * 60_000 + b" HTTP/1.1\r\nHost: localhost",
        HEAD + b"\r\n".join(b"X-%d: 1" % number for number in range(5000)),
    ],
    ids=["long", "query", "many"],
)
async def test_headers_that_arrive_at_once_are_bounded_too(serve, sizes, head, ledger_type):
    async with serve(sizes) as (_, app), connected(app) as stream:
        await stream.send(head + b"\r\nContent-Length: 3\r\n\r\nabc")
        status, problem = await receive(stream)
        assert (status, problem["code"]) == (431, "LEX_ERR_WEB_013")
        assert not app.container.get(ledger_type).opened


async def test_a_request_for_another_protocol_is_answered_and_logs_nothing(serve, sizes, caplog):
    async with serve(sizes) as (_, app), connected(app) as stream:
        upgrade = b"Connection: upgrade\r\nUpgrade: websocket\r\n"
        await stream.send(HEAD + upgrade + b"Content-Length: 3\r\n\r\nabc")
        assert await receive(stream) == (200, 3)
    assert "upgrade" not in caplog.text


# Time.


@pytest.mark.parametrize("begun", [b"", b"G", HEAD], ids=["nothing", "a letter", "two lines"])
async def test_headers_that_do_not_end_close_the_connection(serve, sizes, begun):
    async with serve(sizes, config=WebConfig(port=0, header_timeout=0.05)) as (_, app):
        async with connected(app) as stream:
            if begun:
                await stream.send(begun)
            assert await is_closed(stream)


async def test_headers_that_arrive_letter_by_letter_are_not_waited_for(serve, sizes):
    async with serve(sizes, config=WebConfig(port=0, header_timeout=0.1)) as (_, app):
        async with connected(app) as stream:
            await stream.send(HEAD + b"X-Long: ")
            await drip(stream, b"x")


async def test_each_request_of_a_connection_has_the_time_limit(serve, sizes):
    async with serve(sizes, config=WebConfig(port=0, header_timeout=0.1)) as (_, app):
        async with connected(app) as stream:
            for _ in range(2):
                await stream.send(HEAD + b"Content-Length: 3\r\n\r\nabc")
                assert await receive(stream) == (200, 3)
            await stream.send(HEAD)
            await drip(stream, b"X-More: 1\r\n")


@pytest.mark.parametrize(
    "length", [b"Content-Length: 100\r\n\r\nx", b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"]
)
async def test_a_body_that_does_not_end_is_answered_408(serve, sizes, ledger_type, length):
    async with serve(sizes, config=WebConfig(port=0, body_timeout=0.05)) as (_, app):
        async with connected(app) as stream:
            await stream.send(HEAD + length)
            status, problem = await receive(stream)
            assert (status, problem["code"]) == (408, "LEX_ERR_WEB_010")
        ledger = app.container.get(ledger_type)
        await wait_until(lambda: ledger.open == 0)
        assert len(ledger.opened) == 1


async def test_a_body_that_arrives_letter_by_letter_is_answered_408(serve, sizes):
    async with serve(sizes, config=WebConfig(port=0, body_timeout=0.1)) as (_, app):
        async with connected(app) as stream, anyio.create_task_group() as tasks:
            await stream.send(HEAD + b"Content-Length: 1000000\r\n\r\n")
            tasks.start_soon(drip, stream, b"x")
            assert (await receive(stream))[0] == 408
            tasks.cancel_scope.cancel()


async def test_time_that_the_endpoint_takes_counts_for_nothing(serve):
    router = APIRouter()

    @router.post("/size")
    async def size(request: Request) -> int:
        await anyio.sleep(0.3)
        return len(await request.body())

    config = WebConfig(port=0, body_timeout=0.1, header_timeout=0.1)
    async with serve(router, config=config) as (_, app), connected(app) as stream:
        await stream.send(HEAD + b"Content-Length: 200000\r\n\r\n" + b"x" * 200_000)
        assert await receive(stream) == (200, 200_000)


@pytest.mark.parametrize("times", [1, 1000], ids=["a large response", "pieces"])
async def test_a_client_that_takes_nothing_of_a_response_is_cut_off(serve, ledger_type, times):
    router, ends = APIRouter(), []

    @router.get("/large")
    async def large() -> StreamingResponse:
        async def pieces():
            try:
                for _ in range(times):
                    yield b"x" * (64_000_000 // times)
            finally:
                ends.append(None)

        return StreamingResponse(pieces())

    async with serve(router, config=WebConfig(port=0, send_timeout=0.1)) as (_, app):
        host = app.container.get(WebHost)
        async with connected(app) as stream:
            await stream.send(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await wait_until(lambda: host.connections == 1)
            await wait_until(lambda: host.connections == 0)
            await wait_until(lambda: ends)


async def test_a_client_that_does_not_take_the_end_of_a_response_is_cut_off(serve):
    router, request = APIRouter(), b"GET /text HTTP/1.1\r\nHost: localhost\r\n\r\n"

    @router.get("/text")
    async def text() -> str:
        return "x" * 30_000

    async with serve(router, config=WebConfig(port=0, keep_alive=1, send_timeout=0.1)) as (_, app):
        host = app.container.get(WebHost)
        async with connected(app) as stream:
            await stream.send(request)
            await wait_until(lambda: host.connections == 1)
            [connection] = host._server.server_state.connections
            while not connection.transport.get_write_buffer_size():
                answered = connection.server_state.total_requests
                await stream.send(request)
                await wait_until(
                    lambda before=answered: connection.server_state.total_requests > before
                )
            await wait_until(lambda: host.connections == 0)


async def test_a_client_that_takes_a_response_slowly_is_not_cut_off(serve):
    router = APIRouter()

    @router.get("/large")
    async def large() -> Response:
        return Response(b"x" * 64_000_000)

    async with serve(router, config=WebConfig(port=0, send_timeout=3600)) as (_, app):
        host = app.container.get(WebHost)
        async with connected(app) as stream:
            await stream.send(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await wait_until(lambda: host.connections == 1)
            [connection] = host._server.server_state.connections
            unsent = connection.transport.get_write_buffer_size
            await wait_until(lambda: unsent() > 1_000_000)
            for _ in range(3):
                before = unsent()
                while unsent() == before:
                    await stream.receive()
                connection._check_sending()  # what the clock does
                assert not connection.transport.is_closing()
            await anyio.lowlevel.checkpoint()
            connection._check_sending()
            await wait_until(lambda: host.connections == 0)


# Connections.


async def test_connections_over_the_limit_are_refused_until_others_are_closed(serve, sizes, caplog):
    async with serve(sizes, config=WebConfig(port=0, max_connections=2)) as (_, app):
        host = app.container.get(WebHost)
        for _ in range(2):
            async with connected(app) as first, connected(app) as second:
                for stream in (first, second):
                    await stream.send(HEAD + b"Content-Length: 3\r\n\r\nabc")
                    assert await receive(stream) == (200, 3)
                for _ in range(3):
                    async with connected(app) as third:
                        status, problem = await receive(third)
                        assert (status, problem["code"]) == (503, "LEX_ERR_WEB_011")
                        assert await is_closed(third)
                await first.send(HEAD + b"Content-Length: 3\r\n\r\nabc")
                assert await receive(first) == (200, 3)
            await wait_until(lambda: host.connections == 0)
    assert caplog.text.count("web.max_connections") == 2  # once each time it was full


# Metrics.


async def test_methods_that_nobody_knows_are_one_series(serve):
    observing = ObservabilityModule.configure(ObservabilityConfig(metrics="prometheus"))
    async with serve(modules=[observing]) as (client, _):
        for method in ("GET", "get", "BREW", "X" * 100):
            await client.request(method, "/health/live")
        text = (await client.get("/metrics")).text
    assert 'method="_OTHER"' in text
    assert 'method="GET"' in text
    assert "BREW" not in text
    assert "XXX" not in text
