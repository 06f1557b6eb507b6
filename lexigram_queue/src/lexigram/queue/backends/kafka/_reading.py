"""Reading without a group: ranges of partitions, and a topic as it grows."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from lexigram.queue.backends.kafka._partition import Place
from lexigram.queue.backends.kafka._producer import POLL
from lexigram.queue.backends.kafka._wire import library

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message


BATCH: Final = 500  # records taken from the client at once

_log = logging.getLogger(__name__)


def read_range(
    settings: Mapping[str, Any], ranges: Mapping[Place, tuple[int, int]], timeout: float
) -> list[Message]:
    """All records of the ranges (from, to); blocks, for a thread. Raises KafkaException."""
    module = library()
    wanted = {place: ends for place, ends in ranges.items() if ends[0] < ends[1]}
    if not wanted:
        return []
    reader: Consumer = module.Consumer({**settings, "enable.partition.eof": True})
    found: list[Message] = []
    deadline = time.monotonic() + timeout
    try:
        reader.assign([module.TopicPartition(*place, ends[0]) for place, ends in wanted.items()])
        while wanted and time.monotonic() < deadline:
            for message in next_messages(reader):
                _sort_in(message, wanted, found)
                deadline = time.monotonic() + timeout
    finally:
        reader.close()
    if wanted:
        raise TimeoutError(f"reading {next(iter(wanted))[0]} took too long")
    return found


def next_messages(reader: Consumer) -> list[Message]:
    first = reader.poll(POLL)
    return [] if first is None else [first, *reader.consume(BATCH, timeout=0)]


def _sort_in(message: Message, wanted: dict[Place, tuple[int, int]], found: list[Message]) -> None:
    place = (str(message.topic()), int(message.partition() or 0))
    error, ends = message.error(), wanted.get(place)
    if error is not None:
        if error.code() != library().KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
            raise library().KafkaException(error)
        wanted.pop(place, None)
        return
    offset = message.offset()
    if ends is None or offset is None:
        return
    if offset < ends[1]:
        found.append(message)
    if offset + 1 >= ends[1]:
        del wanted[place]


class Tail:
    """Follows partition 0 of a topic from its beginning: in a thread; calls back in the loop."""

    def __init__(
        self, settings: Mapping[str, Any], topic: str, listener: Callable[[Message], None]
    ) -> None:
        self.position = 0  # the offset after the last record that was reported
        self._loop = asyncio.get_running_loop()
        self._settings, self._topic, self._listener = settings, topic, listener
        self._moved = asyncio.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kafka.{topic}", daemon=True)
        self._thread.start()

    async def reach(self, offset: int, timeout: float) -> None:
        """Return when all records before the offset were reported; raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while self.position < offset:
                self._moved.clear()
                await self._moved.wait()

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped.set()

    def join(self) -> None:
        """Wait for its end; blocks, for a thread."""
        self._thread.join()

    def _run(self) -> None:
        module = library()
        reader: Consumer = module.Consumer({**self._settings, "enable.partition.eof": True})
        try:
            reader.assign([module.TopicPartition(self._topic, 0, 0)])
            while not self._stopped.is_set():
                messages = next_messages(reader)
                if messages:
                    self._loop.call_soon_threadsafe(self._came, messages)
        except RuntimeError:
            _log.debug("the loop of %s is closed", self._topic)
        finally:
            reader.close()

    def _came(self, messages: Sequence[Message]) -> None:
        end = library().KafkaError._PARTITION_EOF  # noqa: SLF001 - its name
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is None and offset is not None:
                self._listener(message)
                self.position = offset + 1
            elif error is not None and error.code() == end and offset is not None:
                self.position = max(self.position, offset)  # past what was compacted away
            elif error is not None:
                _log.warning("reading %s: %s", self._topic, error)
        self._moved.set()
