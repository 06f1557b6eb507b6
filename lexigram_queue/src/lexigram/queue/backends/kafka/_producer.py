"""The producer: one thread hears the confirms."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lexigram.queue.backends.kafka._wire import OutboundRecord, library

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer


POLL: Final = 0.05  # poll interval of the thread, in seconds


class Pump:
    """The producer: one thread hears the confirms and completes the futures of who waits."""

    def __init__(self, settings: Mapping[str, Any], timeout: float) -> None:
        self.fatal: KafkaError | None = None
        self.last_error: KafkaError | None = None
        self._timeout = timeout
        self._stopped = threading.Event()
        self.client: Producer = library().Producer({**settings, "error_cb": self._on_error})
        self._thread = threading.Thread(target=self._run, name="kafka.producer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.client.poll(POLL)

    def _on_error(self, error: KafkaError) -> None:
        self.last_error = error
        if error.fatal():
            self.fatal = error

    async def send(self, records: Sequence[OutboundRecord]) -> dict[int, Exception]:
        """Write all and wait for all confirms; what failed, by place."""
        batch = _Confirms()
        deadline = time.monotonic() + self._timeout
        sent = 0
        for at, record in enumerate(records):
            sent += await self._write(record, at, batch, deadline)
        batch.expect(sent)
        try:
            async with asyncio.timeout(self._timeout + 2.0):
                await batch.done
        except TimeoutError:
            late = TimeoutError("no confirm in time")
            return dict.fromkeys(set(range(len(records))) - batch.confirmed, late) | batch.failures
        return batch.failures

    async def _write(
        self, record: OutboundRecord, at: int, batch: _Confirms, deadline: float
    ) -> int:
        headers: list[tuple[str, str | bytes | None]] = [
            (name, text.encode("utf-8", "surrogatepass")) for name, text in record.headers.items()
        ]
        while True:
            try:
                self.client.produce(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=partial(batch.confirm, at),
                    headers=headers,
                )
            except BufferError as error:
                # The client holds as much as it may: what is confirmed meanwhile makes room.
                if time.monotonic() > deadline:
                    batch.failures[at] = error
                    return 0
                await asyncio.sleep(0.01)
            except library().KafkaException as error:
                batch.failures[at] = error
                return 0
            else:
                return 1

    def stop(self) -> None:
        """Send what is left for a moment, then end the thread."""
        self.client.flush(min(1.0, self._timeout))
        self._stopped.set()
        self._thread.join()


class _Confirms:
    """The confirms of one call. ``confirm`` runs in the thread of the producer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.failures: dict[int, Exception] = {}
        self.confirmed: set[int] = set()
        self._expected = -1

    def confirm(self, at: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures[at] = library().KafkaException(error)
        self.confirmed.add(at)
        if len(self.confirmed) == self._expected:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._finish)

    def expect(self, number: int) -> None:
        """So many were written; they may have been confirmed meanwhile."""
        self._expected = number
        if len(self.confirmed) == number:
            self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
