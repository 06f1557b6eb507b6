"""The ticks of a schedule: which there are, when each fires, and which are too late.

Ticks are whole milliseconds since 1970 UTC, the same numbers in every process. Nothing here
reads a clock or a database.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from typing import Protocol

from attrs import frozen

from lexigram.contracts.infra.schedule.errors import InvalidScheduleError
from lexigram.contracts.infra.schedule.types import MisfirePolicy, Schedule
from lexigram.schedule.cron import Cron
from lexigram.schedule.zones import zone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
COUNTED = 1000  # missed ticks are counted up to here: an old schedule may have missed millions


class Times(Protocol):
    """The ticks of a trigger, without the bounds of the schedule."""

    def next(self, after: int) -> int | None:
        """The first tick after ``after``."""
        ...


@frozen(kw_only=True)
class Decision:
    """What to do with a schedule at one moment."""

    # to be fired now, oldest first
    fire: tuple[int, ...]
    # too late and dropped: the first, the last, and how many (at most COUNTED)
    missed: tuple[int, int, int] | None
    # the first tick that is still to come; None when there is none
    next_tick: int | None
    due: int | None


@frozen
class Calendar:
    """A checked schedule, ready to compute with; making one may read a zone file."""

    schedule: Schedule
    _times: Times
    _first: int
    _last: int | None

    @classmethod
    def of(cls, schedule: Schedule) -> Calendar:
        """Check what the contract could not: cron fields and zone."""
        where = zone(schedule.timezone)
        first = millis(schedule.start) if schedule.start else 0
        times: Times
        if schedule.cron is not None:
            times = _CronTimes(Cron.parsed(schedule.cron, where))
        elif schedule.every is not None:
            times = _Every(round(schedule.every * 1000), first)
        else:
            assert schedule.at is not None
            times = _Once(millis(schedule.at))
        return cls(schedule, times, first, millis(schedule.end) if schedule.end else None)

    def next(self, after: int) -> int | None:
        """The first tick after ``after`` within the bounds."""
        found = self._times.next(max(after, self._first - 1))
        return None if found is None or (self._last is not None and found > self._last) else found

    def first_after(self, now: int) -> int:
        """Like ``next``, for a schedule that is made now: one without a tick left is refused."""
        found = self.next(now)
        if found is None:
            raise InvalidScheduleError(
                f"schedule {self.schedule.name!r} would never fire: its last time has passed",
                details={"schedule": self.schedule.name},
                hint="give at= or end= in the future",
            )
        return found

    def walk(self, after: int) -> Iterator[int]:
        """Every tick after ``after``."""
        tick = self.next(after)
        while tick is not None:
            yield tick
            tick = self.next(tick)

    def due(self, tick: int) -> int:
        """When the tick fires: later by its own part of the jitter, the same everywhere."""
        span = round(self.schedule.jitter * 1000)
        if not span:
            return tick
        seed = f"{self.schedule.name}\n{tick}".encode()
        drawn = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest())
        return tick + drawn % span

    def decide(self, next_tick: int, now: int, most: int) -> Decision:
        """What to fire at ``now``, at most ``most`` ticks; the rest stays for the next look."""
        on_time, late = self._sort_ticks(next_tick, now, most)
        fire, dropped = self._select_ticks(late, on_time, next_tick, now)
        fire = fire[:most]
        following = self.next(fire[-1]) if fire else self._after_drop(dropped, next_tick)
        return Decision(
            fire=tuple(fire),
            missed=dropped,
            next_tick=following,
            due=None if following is None else self.due(following),
        )

    def _sort_ticks(self, next_tick: int, now: int, most: int) -> tuple[list[int], int | None]:
        """Ticks that are due and in time, and the last one that is too late."""
        grace = round(self.schedule.grace * 1000)
        # Up to here ticks are due whatever their jitter, and all but the last of them too late:
        # not walked one by one.
        settled = now - round(self.schedule.jitter * 1000) - 1
        recent = self._latest(next_tick, settled, 2) if next_tick <= settled else []
        late: int | None = None
        if recent and recent[-1] + grace <= settled:
            late = recent[-1]
        elif len(recent) == 2:
            late = recent[0]
        on_time: list[int] = []
        ticks = chain(self.walk(next_tick - 1 if late is None else late), (None,))
        for tick, following in pairwise(ticks):
            if tick is None or (due := self.due(tick)) > now or len(on_time) >= most:
                break
            is_late = now - due > grace or (following is not None and now - due >= following - tick)
            if is_late and not on_time:
                late = tick
            else:
                on_time.append(tick)
        return on_time, late

    def _select_ticks(
        self, late: int | None, on_time: list[int], next_tick: int, now: int
    ) -> tuple[list[int], tuple[int, int, int] | None]:
        """What fires, and what is dropped, by the misfire policy."""
        if late is None:
            return on_time, None
        policy, kept = self.schedule.misfire, list[int]()
        if policy is MisfirePolicy.FIRE_ALL:
            kept = self._latest(next_tick, late, self.schedule.catch_up)
        elif policy is MisfirePolicy.FIRE_ONCE and not on_time:
            kept = [late]
        if not kept:
            return on_time, self._count_ticks(next_tick, late)
        if kept[0] == next_tick:
            return [*kept, *on_time], None
        return [*kept, *on_time], self._count_ticks(next_tick, kept[0] - 1)

    def _latest(self, first: int, until: int, count: int) -> list[int]:
        """The last ``count`` ticks from ``first`` to ``until``; ``first`` is one of them.

        Looks back from the end, twice as far each time, so that a year of seconds costs no more
        than a minute of them.
        """
        second = self.next(first)
        span = max(1, (second - first if second is not None else 1) * count)
        while True:
            begin = max(first - 1, until - span)
            found = deque[int](maxlen=count)
            for tick in self.walk(begin):
                if tick > until:
                    break
                found.append(tick)
            if len(found) == count or begin < first:
                return list(found)
            span *= 2

    def _count_ticks(self, first: int, until: int) -> tuple[int, int, int]:
        count, last = 0, first
        for tick in self.walk(first - 1):
            if tick > until:
                break
            count, last = count + 1, tick
            if count == COUNTED:
                last = self._latest(first, until, 1)[-1]
                break
        return first, last, count

    def _after_drop(self, dropped: tuple[int, int, int] | None, next_tick: int) -> int | None:
        return next_tick if dropped is None else self.next(dropped[1])


@frozen
class _Every:
    span: int
    anchor: int

    def next(self, after: int) -> int | None:
        return self.anchor + ((after - self.anchor) // self.span + 1) * self.span


@frozen
class _Once:
    tick: int

    def next(self, after: int) -> int | None:
        return self.tick if self.tick > after else None


@frozen
class _CronTimes:
    cron: Cron

    def next(self, after: int) -> int | None:
        found = self.cron.next(moment(after))
        return None if found is None else millis(found)


def millis(at: datetime) -> int:
    """Milliseconds since 1970 UTC; finer parts are cut off."""
    return (at - _EPOCH) // _MILLISECOND  # whole numbers: timestamp() is a float and rounds


def moment(ms: int) -> datetime:
    """The inverse of ``millis``."""
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
