"""A TCP proxy before a real server: cuts, holds or refuses connections when a test says so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def proxy_to(address: str) -> AsyncIterator["Proxy"]:
    """A proxy before the server at ``host:port``; at the end all its connections are cut."""
    host, port = address.rsplit(":", 1)
    proxy = Proxy(host, int(port))
    server = await asyncio.start_server(proxy.carry, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.release()
        proxy.cut()
        await proxy.wait_until_idle()


class Proxy:
    """Carries bytes both ways; every fault is switched on by the test, none happens by itself."""

    def __init__(self, host: str, port: int) -> None:
        self.address = ""
        self.accepted = 0  # connections so far, refused ones included
        self.cuts = 0  # connections cut by cut_on()
        self._far = (host, port)
        self._refuses = False
        self._flows = asyncio.Event()
        self._flows.set()
        self._trap: bytes | None = None
        self._trap_delivers = False
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    def cut(self) -> None:
        """Cut every connection, without a word to either side."""
        for writer in list(self._open):
            writer.transport.abort()

    def refuse(self) -> None:
        """Cut what is open, and close new connections at once until ``accept()``."""
        self._refuses = True
        self.cut()

    def accept(self) -> None:
        """Let new connections through again."""
        self._refuses = False

    def hold(self) -> None:
        """Keep all bytes of both directions until ``release()``: a server that hangs."""
        self._flows.clear()

    def release(self) -> None:
        """Let held and new bytes through."""
        self._flows.set()

    def cut_on(self, data: bytes, *, delivered: bool = False) -> None:
        """Cut the connection that next sends ``data``; other connections stay.

        ``delivered``: the server gets it and answers, and the answer is lost. Otherwise the
        server never sees it.
        """
        self._trap, self._trap_delivers = data, delivered

    async def wait_until_idle(self) -> None:
        """Return when no connection is open."""
        while self._open:
            await asyncio.wait(list(self._open.values()))

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; called by the listener."""
        self.accepted += 1
        if self._refuses:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._open[writer] = task
        try:
            await self._connect(reader, writer)
        except ConnectionError:
            pass  # one of the sides is gone, as it may be
        finally:
            writer.transport.abort()
            del self._open[writer]

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._far)
        trapped = asyncio.Event()
        ways = [
            asyncio.create_task(self._requests(reader, far_writer, trapped)),
            asyncio.create_task(self._answers(far_reader, writer, trapped)),
        ]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in done:
                way.result()
        finally:
            far_writer.transport.abort()
            writer.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, trapped: asyncio.Event
    ) -> None:
        while data := await source.read(65536):
            await self._flows.wait()
            if self._trap is not None and self._trap in data:
                self._trap = None
                self.cuts += 1
                if not self._trap_delivers:
                    return
                trapped.set()
            target.write(data)
            await target.drain()

    async def _answers(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, trapped: asyncio.Event
    ) -> None:
        while data := await source.read(65536):
            await self._flows.wait()
            if trapped.is_set():
                return
            target.write(data)
            await target.drain()
