"""Keeps a driver connected: a failed call requests a repair, and one task does it."""

from __future__ import annotations

import logging
from typing import Final

import anyio

from lexigram.concurrency import as_failure, is_retryable
from lexigram.contracts.queue import QueueDriverProtocol, QueueError
from lexigram.leasing import Backoff
from lexigram.queue.runtime.background import Background
from lexigram.sql.errors import is_file_lost

PAUSES: Final = Backoff(first=0.1, cap=2.0)  # a broker that is back is used within two seconds

_log = logging.getLogger(__name__)


class Link:
    """The connection of one driver."""

    def __init__(self, driver: QueueDriverProtocol, background: Background, name: str) -> None:
        self._driver = driver
        self._background = background
        self._name = name
        self._repaired: anyio.Event | None = None  # set while a repair is under way
        self.last_error: Exception | None = None

    async def open(self, wait: float = 0.0) -> None:
        """Connect, trying again for ``wait`` seconds; raises the last error.

        What is not retryable, such as a missing library, is raised at once.
        """
        deadline, attempt = anyio.current_time() + wait, 0
        while True:
            try:
                await self._driver.connect()
            except QueueError as error:
                if not is_retryable(error):
                    raise
                attempt += 1
                pause = PAUSES.delay(attempt)
                if anyio.current_time() + pause > deadline:
                    raise
                await anyio.sleep(pause)
            else:
                return

    def suspect(self, error: Exception) -> None:
        """A call failed: have the connection repaired in the background."""
        self.last_error = error
        if self._repaired is None and self._background.is_open:
            self._repaired = anyio.Event()
            level = logging.ERROR if is_file_lost(error) else logging.WARNING
            _log.log(level, "queue %s: connection to the broker lost: %s", self._name, error)
            self._background.start(self._repair, name=f"queue.{self._name}.repair")

    async def wait_repaired(self) -> None:
        """Return when no repair is under way."""
        if self._repaired is not None:
            await self._repaired.wait()

    @property
    def is_broken(self) -> bool:
        """True while a repair is under way."""
        return self._repaired is not None

    async def _repair(self) -> None:
        attempt = 0
        while True:
            attempt += 1
            # First a pause: a driver that reconnects by itself is often quicker.
            await anyio.sleep(PAUSES.delay(attempt))
            try:
                await self._driver.connect()
                break
            except BaseException as error:
                failure = as_failure(error)  # drivers of others: whatever it is, again
                if failure is None:
                    raise
                self.last_error = failure
        repaired, self._repaired = self._repaired, None
        if repaired is not None:
            repaired.set()
        _log.warning("queue %s: reconnected to the broker after %d attempts", self._name, attempt)
