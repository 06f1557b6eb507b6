"""Values of schedules: when, what, and what became of it. All spans are seconds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from lexigram.contracts.infra.schedule.errors import InvalidScheduleError

SHORTEST_INTERVAL = 0.1  # below it the database, not the clock, would set the pace
MOST_CATCH_UP = 1000  # ticks one schedule may make up for after a pause
LONGEST_NAME = 200
MAX_SECONDS = 100 * 365 * 86_400  # of every=, grace= and jitter=
MAX_TEXT_LENGTH = 10_000  # characters of a description or a cron expression


class MisfirePolicy(StrEnum):
    """What becomes of ticks that nobody fired within their grace time."""

    SKIP = "skip"  # they are gone
    FIRE_ONCE = "fire_once"  # one firing stands for all of them, the latest
    FIRE_ALL = "fire_all"  # the latest ``catch_up`` of them fire, oldest first


class ScheduleState(StrEnum):
    """Whether a schedule fires."""

    ACTIVE = "active"
    PAUSED = "paused"  # by an operator, until resumed
    INACTIVE = "inactive"  # declared in code once, and no longer
    FINISHED = "finished"  # no tick is left


class ScheduleOrigin(StrEnum):
    """Where a schedule comes from."""

    CODE = "code"  # declared; changed by changing the code
    RUNTIME = "runtime"  # made by ``create``


class FiringState(StrEnum):
    """What became of a tick."""

    FIRED = "fired"  # handed to the job queue or the outbox, in the tick's transaction
    PENDING = "pending"  # an in-process callback that nobody has finished yet
    DONE = "done"  # the callback returned
    FAILED = "failed"  # the callback raised; it is not called again


@dataclass(frozen=True, kw_only=True)
class JobTarget:
    """Enqueue a job in the same transaction as the tick. Arguments must be JSON."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    priority: int = 0
    # a keyword argument that gets the tick, as ISO 8601 text in UTC
    tick_argument: str | None = None


@dataclass(frozen=True, kw_only=True)
class MessageTarget:
    """Stage a message in the outbox in the same transaction as the tick. The payload is JSON."""

    topic: str
    payload: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class CallbackTarget:
    """Call a function of a running application, by the name it is registered under."""

    name: str


ScheduleTarget: TypeAlias = JobTarget | MessageTarget | CallbackTarget


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When something starts, and what.

    Exactly one of ``cron``, ``every`` and ``at`` says when. ``cron`` has five fields, or six
    with seconds first, read in ``timezone``. ``every`` counts from ``start``, or from
    1970-01-01 UTC, so that all processes have the same ticks. ``at`` fires once. Only ticks
    from ``start`` to ``end``, both included, count. Times are aware.
    """

    name: str
    target: ScheduleTarget
    cron: str | None = None
    every: float | None = None
    at: datetime | None = None
    # IANA name, for ``cron`` and for what people are shown
    timezone: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    # each tick is put off by its own part of this, the same in every process
    jitter: float = 0.0
    misfire: MisfirePolicy = MisfirePolicy.FIRE_ONCE
    # a tick fired no later than this after its time, and less than one period, is no misfire
    grace: float = 60.0
    # most late ticks that FIRE_ALL fires
    catch_up: int = 100
    description: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant; cron fields and zone names are checked where it is kept."""
        check_schedule_name(self.name)
        for key, text in (("description", self.description), ("cron", self.cron or "")):
            if len(text) > MAX_TEXT_LENGTH or not _is_storable(text):
                raise self._invalid(
                    f"has a {key} of {len(text)} characters, or with NUL or a lone surrogate",
                    f"shorten it to {MAX_TEXT_LENGTH} characters, and remove those",
                )
        given = [key for key in ("cron", "every", "at") if getattr(self, key) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise self._invalid(
                f"gives {found}", "give exactly one of cron=, every= (seconds) and at="
            )
        self._check_spans()
        self._check_times()

    def _check_spans(self) -> None:
        every = self.every
        if every is not None and not (_finite(every) and SHORTEST_INTERVAL <= every <= MAX_SECONDS):
            raise self._invalid(
                f"repeats every {every!r} s",
                f"every= is a number of seconds from {SHORTEST_INTERVAL:g} to {MAX_SECONDS}",
            )
        for key, value in (("grace", self.grace), ("jitter", self.jitter)):
            if not _finite(value) or not 0 <= value <= MAX_SECONDS:
                raise self._invalid(
                    f"has a {key} of {value!r} s", f"{key}= is 0 to {MAX_SECONDS} seconds"
                )
        if every is not None and self.jitter >= every:
            raise self._invalid(
                f"has a jitter of {self.jitter:g} s but repeats every {every:g} s",
                "take a jitter shorter than the interval, so that ticks stay in order",
            )
        if not 1 <= self.catch_up <= MOST_CATCH_UP:
            raise self._invalid(
                f"catches up {self.catch_up!r} ticks", f"catch_up= is between 1 and {MOST_CATCH_UP}"
            )

    def _check_times(self) -> None:
        for key, value in (("at", self.at), ("start", self.start), ("end", self.end)):
            if value is not None and value.tzinfo is None:
                raise self._invalid(
                    f"has {key}={value.isoformat()} without a time zone",
                    "give an aware time, such as datetime(2026, 1, 1, tzinfo=UTC)",
                )
        if self.start is not None and self.end is not None and self.end < self.start:
            raise self._invalid("ends before it starts", "exchange start= and end=")

    def _invalid(self, what: str, hint: str) -> InvalidScheduleError:
        return InvalidScheduleError(
            f"schedule {self.name!r} {what}", details={"schedule": self.name}, hint=hint
        )


@dataclass(frozen=True, kw_only=True)
class ScheduleInfo:
    """A schedule as it is kept. A snapshot: it does not change when the record does."""

    schedule: Schedule
    state: ScheduleState
    origin: ScheduleOrigin
    # which application declared it; an application lets go of its own ones only
    owner: str
    # the next tick, and when it fires: the tick and its jitter; None unless ACTIVE
    next_tick: datetime | None
    due_at: datetime | None
    last_tick: datetime | None
    # tries of the next tick that failed, and why the last one did
    failures: int = 0
    last_error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Firing:
    """One tick that was fired."""

    schedule: str
    # when it was meant for; for a manual one, when it was asked for
    tick: datetime
    fired_at: datetime
    # by ``run_now``, not by the clock
    manual: bool
    state: FiringState
    # the id of the job or message; None for a callback
    reference: str | None = None
    error: str | None = None


def _finite(value: float) -> bool:
    return not isinstance(value, bool) and math.isfinite(value)


def check_schedule_name(name: str) -> None:
    """Raise InvalidScheduleError for a name that no schedule can have."""
    if not 0 < len(name) <= LONGEST_NAME or name != name.strip() or not _is_storable(name):
        raise InvalidScheduleError(
            f"{ascii(name)[:80]} is no name for a schedule",
            details={"field": "name"},
            hint=f"1 to {LONGEST_NAME} characters without NUL, no blanks around them",
        )


def _is_storable(text: str) -> bool:
    return text.isprintable() or not _UNSTORABLE.search(text)


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # what databases refuse
