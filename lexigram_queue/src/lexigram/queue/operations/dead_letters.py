"""List, redrive and purge the dead letters of a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import anyio
from attrs import frozen

from lexigram import clock
from lexigram.contracts.queue import (
    BusMessage,
    DeadLetterEntry,
    DeadLetterReason,
)
from lexigram.queue.bus import BusQueue
from lexigram.queue.errors import UndecodableMessageError
from lexigram.queue.options import DeadLetterPolicy
from lexigram.queue.runtime.payloads import Payloads

PAGE: Final = 100  # entries read, and at most sent back, in one round trip

Place = tuple[str, str]  # topic or pattern, and group
Progress = Callable[[int], None]


@frozen(kw_only=True)
class DeadLetterFilter:
    """Selects entries; a field that is None matches all, so the bare filter matches everything."""

    ids: Collection[str] | None = None
    # The topic or pattern the group receives from.
    topic: str | None = None
    group: str | None = None
    reason: DeadLetterReason | None = None
    # Part of the error's text.
    error: str | None = None
    failed_before: datetime | None = None
    failed_after: datetime | None = None

    @property
    def needs_reading(self) -> bool:
        """True when entries must be read to decide whether they match."""
        rest = (self.reason, self.error, self.failed_before, self.failed_after)
        return any(one is not None for one in rest)

    def covers(self, place: Place) -> bool:
        """Whether entries of this group can match."""
        topic, group = place
        return self.topic in {None, topic} and self.group in {None, group}

    def matches(self, entry: DeadLetterEntry) -> bool:
        """Whether this entry of a covered group matches."""
        return (
            (self.ids is None or entry.message.id in self.ids)
            and self.reason in {None, entry.reason}
            and (self.error is None or self.error in entry.error)
            and (self.failed_before is None or entry.failed_at < self.failed_before)
            and (self.failed_after is None or entry.failed_at > self.failed_after)
        )


EVERYTHING: Final = DeadLetterFilter()


class DeadLetters:
    """The dead letters of one queue, whatever its broker.

    An entry belongs to a group: one message may be set aside by several, and a redrive goes to
    the group that failed and to no other. Payloads are decoded where that is possible.
    """

    def __init__(self, queue: BusQueue) -> None:
        self.queue = queue
        self._payloads = Payloads(queue.options.serializer)

    async def places(self, wanted: DeadLetterFilter = EVERYTHING) -> list[Place]:
        """Every (topic, group) on the broker that can have matching entries, sorted."""
        return sorted(filter(wanted.covers, await self.queue.driver.groups()))

    async def find(self, wanted: DeadLetterFilter = EVERYTHING) -> AsyncIterator[DeadLetterEntry]:
        """Matching entries, group by group, oldest first."""
        for place in await self.places(wanted):
            async for page in self._pages(place):
                for entry in filter(wanted.matches, page):
                    yield self._decode(entry)

    async def list(
        self, wanted: DeadLetterFilter = EVERYTHING, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Some of them: ``limit`` entries after the first ``offset``."""
        found: list[DeadLetterEntry] = []
        left = offset
        async for entry in self.find(wanted):
            if len(found) == limit:
                break
            if left:
                left -= 1
            else:
                found.append(entry)
        return found

    async def get(self, message_id: str) -> Sequence[DeadLetterEntry]:
        """The entries of one message: one per group that set it aside."""
        return [entry async for entry in self.find(DeadLetterFilter(ids={message_id}))]

    async def count(self, place: Place) -> int:
        """How many entries a group has; none is read."""
        return await self.queue.driver.count_dead(*place)

    async def redrive(
        self,
        wanted: DeadLetterFilter = EVERYTHING,
        *,
        rate: float | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Send entries back to the groups they came from; how many.

        ``rate``: the most per second. ``limit``: the most in all. ``progress`` is called with
        the number so far. Each message is redriven once per call: one that fails again stays a
        dead letter, and entries that failed after the call began are not touched. Cancelling
        keeps the entries that were not sent yet.
        """
        if rate is not None and rate <= 0:
            raise ValueError(f"rate must be above 0, not {rate:g}")
        run = _Run(self.queue.driver.redrive, rate, limit, progress)
        for place in await self.places(wanted):
            await self._each(place, wanted, run)
        return run.done

    async def purge(
        self, wanted: DeadLetterFilter = EVERYTHING, *, progress: Progress | None = None
    ) -> int:
        """Delete entries permanently; how many."""
        run = _Run(self.queue.driver.purge_dead, None, None, progress)
        for place in await self.places(wanted):
            await self._each(place, wanted, run)
        return run.done

    async def trim(self, policy: DeadLetterPolicy) -> int:
        """Delete the entries beyond a policy, oldest first; how many."""
        dropped = 0
        if policy.max_age is not None:
            oldest = datetime.fromtimestamp(clock.timestamp(), UTC) - timedelta(
                seconds=policy.max_age
            )
            dropped += await self.purge(DeadLetterFilter(failed_before=oldest))
        if policy.max_entries is not None:
            for place in await self.places():
                dropped += await self._keep_latest(place, policy.max_entries)
        return dropped

    async def _keep_latest(self, place: Place, number: int) -> int:
        driver, dropped = self.queue.driver, 0
        while await driver.count_dead(*place) > number:
            oldest = await driver.list_dead(*place, limit=PAGE)
            # Every entry at or behind position ``number`` means that one of the oldest is surplus.
            kept = await driver.list_dead(*place, limit=PAGE, offset=number)
            surplus = [entry.message.id for entry in oldest[: len(kept)]]
            if not surplus:
                break
            dropped += await driver.purge_dead(*place, surplus)
        return dropped

    async def _each(self, place: Place, wanted: DeadLetterFilter, run: _Run) -> None:
        """Apply the run to the matching entries of one group, page by page."""
        if not wanted.needs_reading and wanted.ids is not None:
            await run.take(place, list(wanted.ids))
            return
        if not wanted.needs_reading and run.is_free:
            await run.take_all(place)  # the driver does it without reading entries
            return
        seen: set[str] = set()
        passed = 0  # entries that stay, at the head of the list: pages begin behind them
        while not run.is_full:
            page = await self.queue.driver.list_dead(*place, limit=PAGE, offset=passed)
            if not page:
                return
            chosen = [
                entry.message.id
                for entry in page
                if entry.message.id not in seen
                and entry.failed_at <= run.began
                and wanted.matches(entry)
            ]
            seen.update(chosen)
            await run.take(place, chosen)
            passed += len(page) - len(chosen)

    async def _pages(self, place: Place) -> AsyncIterator[Sequence[DeadLetterEntry]]:
        offset = 0
        while page := await self.queue.driver.list_dead(*place, limit=PAGE, offset=offset):
            yield page
            offset += len(page)

    def _decode(self, entry: DeadLetterEntry) -> DeadLetterEntry:
        return replace(entry, message=readable(self._payloads, entry.message))


def readable(payloads: Payloads, message: BusMessage) -> BusMessage:
    """The message with its payload decoded; with its bytes where that cannot be done."""
    try:
        return payloads.decode_payload(message, Any)
    except UndecodableMessageError:
        return message


class _Run:
    """One redrive or purge: rate-limited, and reporting its progress."""

    def __init__(
        self,
        work: Callable[[str, str, Sequence[str] | None], Awaitable[int]],
        rate: float | None,
        limit: int | None,
        progress: Progress | None,
    ) -> None:
        self._work, self._rate, self._limit, self._progress = work, rate, limit, progress
        self._started = anyio.current_time()
        self.began = datetime.fromtimestamp(clock.timestamp(), UTC)
        self.done = 0

    @property
    def is_full(self) -> bool:
        return self._limit is not None and self.done >= self._limit

    @property
    def is_free(self) -> bool:
        return self._rate is None and self._limit is None and self._progress is None

    async def take_all(self, place: Place) -> None:
        self.done += await self._work(*place, None)

    async def take(self, place: Place, ids: Sequence[str]) -> None:
        """Work on these, in steps that keep to the rate."""
        left = list(ids)
        while left and not self.is_full:
            size = self._step()
            step, left = left[:size], left[size:]
            self.done += await self._work(*place, step)
            if self._progress is not None:
                self._progress(self.done)
            await self._pace()

    def _step(self) -> int:
        size = PAGE if self._rate is None else max(1, min(PAGE, int(self._rate)))
        return size if self._limit is None else max(1, min(size, self._limit - self.done))

    async def _pace(self) -> None:
        if self._rate is not None:
            due = self._started + self.done / self._rate
            await anyio.sleep(max(0.0, due - anyio.current_time()))
