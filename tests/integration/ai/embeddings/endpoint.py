"""A real HTTP server on loopback that speaks POST /v1/embeddings, and misbehaves as told."""

import asyncio
import json
import zlib
from contextlib import asynccontextmanager

DIMENSION = 8


class Endpoint:
    """``script`` is taken one entry per request: a function of the request that gives an answer.

    When it is empty every request is answered well.
    """

    def __init__(self):
        self.script = []
        self.requests = []
        self.dimension = DIMENSION
        self.running = 0
        self.most_running = 0
        self.hold = None
        self._tasks = set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                self.running += 1
                self.most_running = max(self.running, self.most_running)
                if self.hold is not None:
                    await self.hold.wait()
                make = self.script.pop(0) if self.script else good
                answer = make(self, request)
                if answer is None:
                    await asyncio.Event().wait()  # hangs
                status, headers, body = answer
                self.running -= 1
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}"]
                lines += [f"{name}: {value}" for name, value in headers.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + data)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(asyncio.current_task())
            writer.close()


@asynccontextmanager
async def serving():
    endpoint = Endpoint()
    server = await asyncio.start_server(endpoint._serve, "127.0.0.1", 0)
    endpoint.port = server.sockets[0].getsockname()[1]
    try:
        yield endpoint
    finally:
        server.close()
        for task in list(endpoint._tasks):
            task.cancel()
        await server.wait_closed()


async def _read(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().strip().split("\r\n")
    headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return {"line": first, "headers": headers, **json.loads(body or b"{}")}


def vector_of(text, dimension=DIMENSION):
    """A vector that only this text has."""
    seed = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    return [((seed * (n + 3)) % 9973) / 9973.0 + 0.001 for n in range(dimension)]


def listed(endpoint, texts):
    return [
        {"object": "embedding", "index": n, "embedding": vector_of(text, endpoint.dimension)}
        for n, text in enumerate(texts)
    ]


def good(endpoint, request):
    return 200, {}, {"object": "list", "data": listed(endpoint, request["input"])}


def shuffled(endpoint, request):
    return 200, {}, {"data": list(reversed(listed(endpoint, request["input"])))}


def one_missing(endpoint, request):
    return 200, {}, {"data": listed(endpoint, request["input"])[:-1]}


def hangs(endpoint, request):
    return None


def fails(status, headers=None, body=None):
    answer = {"error": {"message": f"status {status}"}} if body is None else body
    return lambda endpoint, request: (status, headers or {}, answer)
