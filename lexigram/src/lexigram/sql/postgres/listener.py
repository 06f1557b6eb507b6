"""Keeps one connection that LISTENs, and makes a new one whenever it breaks."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import asyncpg  # type: ignore[import-untyped]

from lexigram.leasing.backoff import Backoff
from lexigram.leasing.subscriptions import Subscription, Subscriptions
from lexigram.observability import get_logger
from lexigram.sql.postgres.errors import FOREIGN

logger = get_logger(__name__)

_RECONNECT = Backoff(first=0.05, cap=1.0)


class Listener:
    """One connection for all channels of a Database object, opened for the first listener."""

    def __init__(self, dsn: str, connect_timeout: float) -> None:
        self._dsn = dsn
        self._options: dict[str, Any] = {"timeout": connect_timeout}
        self._subscriptions = Subscriptions()
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        # Channels the server has confirmed on the connection in use.
        self._heard: set[str] = set()
        self._confirmed = anyio.Event()

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Subscription]:
        """Subscribe; the block starts once the server has confirmed it."""
        with self._subscriptions.open(channel) as subscription:
            self._start()
            self._changed.set()
            while channel not in self._heard:
                await self._confirmed.wait()
            try:
                yield subscription
            finally:
                self._changed.set()

    async def close(self) -> None:
        """Drop the connection; listeners hear nothing any more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _start(self) -> None:
        if self._task is None:
            # An empty context: the task must not inherit the transaction of its first listener.
            self._task = asyncio.get_running_loop().create_task(
                self._stay_connected(), name="lexigram-sql-listener", context=contextvars.Context()
            )

    async def _stay_connected(self) -> None:
        failures = 0
        while True:
            try:
                connection = await asyncpg.connect(self._dsn, **self._options)
                failures = 0
                await self._serve(connection)
            except FOREIGN as error:
                failures += 1
                logger.warning("listener lost its connection", error=str(error), failures=failures)
            self._heard.clear()
            await asyncio.sleep(_RECONNECT.delay(failures))

    async def _serve(self, connection: asyncpg.Connection) -> None:
        """Until the connection breaks."""
        connection.add_termination_listener(lambda _: self._changed.set())
        try:
            while not connection.is_closed():
                self._changed.clear()
                await self._adjust(connection)
                await self._changed.wait()
        finally:
            connection.terminate()

    async def _adjust(self, connection: asyncpg.Connection) -> None:
        wanted = self._subscriptions.channels
        fresh = wanted - self._heard
        for channel in fresh:
            await connection.add_listener(channel, self._on_notify)
            self._heard.add(channel)
            # Whatever was sent before this moment was missed: let everybody look once.
            self._subscriptions.tell(channel, "")
        for channel in self._heard - wanted:
            await connection.remove_listener(channel, self._on_notify)
            self._heard.discard(channel)
        confirmed, self._confirmed = self._confirmed, anyio.Event()
        confirmed.set()

    def _on_notify(self, connection: object, pid: int, channel: str, payload: object) -> None:
        self._subscriptions.tell(channel, str(payload))
