"""Connections to Redis, and scripts on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha1
from importlib import import_module
from typing import Any, Final

from lexigram.queue.backends.redis import _scripts as scripts


class Connection:
    """One connection, used by one task at a time.

    The client library is asked to connect, to send and to read, no more: its own pool costs
    three times as much per command, most of it for time-outs in tasks of their own.
    """

    __slots__ = ("_connection", "_pack", "_timeout")

    def __init__(self, connection: Any, timeout: float) -> None:
        self._connection, self._timeout = connection, timeout
        self._pack = _packer() or connection.pack_command

    async def open(self) -> None:
        async with asyncio.timeout(self._timeout):
            await self._connection.connect()

    async def ask(self, command: Sequence[Any], block: float = 0.0) -> Any:
        """The answer; ``block`` is what Redis itself may wait, in seconds."""
        async with asyncio.timeout(self._timeout + block):
            packed = self._pack(*command)
            await self._connection.send_packed_command(packed, check_health=False)
            return await self._connection.read_response()

    async def is_usable(self) -> bool:
        """False when the server closed it while nobody looked."""
        look = getattr(self._connection, "can_read", None) or self._connection.can_read_destructive
        return self._connection.is_connected and not await look()

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)


class Connections:
    """The connections of one driver: those that are free are used again, the last one first."""

    def __init__(self, pool: Any, limit: int, timeout: float) -> None:
        # Answers in the form of protocol 2 whatever the server speaks; time-outs are ours.
        self._settings = {**pool.connection_kwargs, "socket_timeout": None, "protocol": 2}
        self._kind, self._timeout = pool.connection_class, timeout
        self._few = asyncio.Semaphore(limit)
        self._free: list[Connection] = []
        self._is_closed = False

    @asynccontextmanager
    async def one_of_few(self) -> AsyncGenerator[Connection, None]:
        """A connection for a command; at most ``limit`` are in use at a time."""
        async with self._few, self.one() as connection:
            yield connection

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[Connection, None]:
        """A connection for a blocking call; an error or a cancellation breaks it."""
        from redis.exceptions import ResponseError

        connection = await self._take()
        try:
            yield connection
        except ResponseError:
            await self._give_back(connection)  # an answer, if not a pleasant one
            raise
        except BaseException:
            await connection.close()
            raise
        await self._give_back(connection)

    async def _take(self) -> Connection:
        while self._free:
            connection = self._free.pop()
            if await connection.is_usable():
                return connection
            await connection.close()
        connection = Connection(self._kind(**self._settings), self._timeout)
        try:
            await connection.open()
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _give_back(self, connection: Connection) -> None:
        if self._is_closed:
            await connection.close()
        else:
            self._free.append(connection)

    async def close(self) -> None:
        self._is_closed = True
        free, self._free = self._free, []
        for connection in free:
            await connection.close()


# Scripts by their text, with the name under which Redis knows them.
SCRIPTS: Final = {
    text: sha1(text.encode()).hexdigest()  # noqa: S324 - Redis names scripts so
    for text in (
        scripts.PUBLISH,
        scripts.DECLARE,
        scripts.DROP,
        scripts.TAKE,
        scripts.ACK,
        scripts.NACK,
        scripts.DEAD,
        scripts.MARK_BEGUN,
        scripts.RELEASE,
        scripts.EXTEND,
        scripts.LEAVE,
        scripts.TIDY,
        scripts.DEAD_PAGE,
        scripts.COUNT_DEAD,
        scripts.DEAD_BY_ID,
        scripts.REDRIVE,
        scripts.PURGE_DEAD,
        scripts.STATISTICS,
        scripts.PEEK,
        scripts.PURGE,
    )
}


async def run_script(connection: Connection, script: str, arguments: list[Any]) -> Any:
    from redis.exceptions import NoScriptError

    try:
        return await connection.ask(("EVALSHA", SCRIPTS[script], 0, *arguments))
    except NoScriptError:  # Redis was restarted
        return await connection.ask(("EVAL", script, 0, *arguments))


def _packer() -> Callable[..., Any] | None:
    """Packing in C, where it is installed: in Python it took 40 % of the time of a publish."""
    try:
        hiredis: Any = import_module("hiredis")
    except ImportError:
        return None

    def pack(*command: Any) -> Any:
        return hiredis.pack_command(command)

    return pack
