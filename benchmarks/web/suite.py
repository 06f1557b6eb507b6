"""Requests through the host, beside the same endpoints in bare FastAPI on the same uvicorn."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from harness import Case, Plan, Section, Target, Work, measure

TITLE = "Web"
PEERS = ("fastapi", "uvicorn")

BARE, OURS = "bare FastAPI", "lexigram"
CONNECTIONS = 16
WORKS = {
    "an endpoint with a path parameter and a model": "/orders/7",
    "the same with a service that lives as long as the request": "/scoped/7",
}
NOTE = (
    "Time per request (its inverse is requests per second) over 16 connections on 127.0.0.1, each "
    "server in a process of its own, the client in a third. Ours adds to each request a scope of "
    "the container, an id, a check of the caller's host, the limit of the body and cancelling when "
    "the client goes away. Tracing, metrics and access log are off on both sides."
)


async def parts(plan: Plan) -> AsyncIterator[Section]:
    servers = {BARE: Server("bare"), OURS: Server("lexigram")}
    try:
        works = []
        for title, path in WORKS.items():
            cases = [await case(who, server, path) for who, server in servers.items()]
            works.append(Work(title, "µs", BARE, cases, {OURS: Target(1.25, BARE)}))
        await measure(works, plan)
        rates = ", ".join(
            f"{case.who} {1e9 / case.median:,.0f}" for work in works for case in work.cases
        )
        yield Section("Requests", f"{NOTE} Requests per second: {rates}.", works)
    finally:
        for server in servers.values():
            server.process.kill()
            server.process.wait()


class Server:
    """A server in a process of its own, and connections to it."""

    def __init__(self, kind: str) -> None:
        script = Path(__file__).with_name("servers.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), kind], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.connections: list = []

    async def connect(self) -> list:
        if not self.connections:
            opening = [asyncio.open_connection("127.0.0.1", self.port) for _ in range(CONNECTIONS)]
            self.connections = await asyncio.gather(*opening)
        return self.connections


async def case(who: str, server: Server, path: str) -> Case:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    reader, writer = (await server.connect())[0]
    assert json.loads(await ask(reader, writer, request)) == {"number": 7, "lines": ["a", "b"]}

    async def run(loops: int) -> int:
        connections = await server.connect()
        each = max(1, loops // len(connections))
        start = time.perf_counter_ns()
        await asyncio.gather(
            *(many(reader, writer, request, each) for reader, writer in connections)
        )
        return (time.perf_counter_ns() - start) * loops // (each * len(connections))

    return Case(who, run)


async def many(reader, writer, request: bytes, count: int) -> None:
    for _ in range(count):
        await ask(reader, writer, request)


async def ask(reader, writer, request: bytes) -> bytes:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return await reader.readexactly(length)
