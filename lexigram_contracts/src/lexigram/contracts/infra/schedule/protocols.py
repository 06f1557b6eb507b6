"""Schedules: kept, changed and fired."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lexigram.contracts.infra.schedule.types import (
        Firing,
        Schedule,
        ScheduleInfo,
        ScheduleState,
    )


@runtime_checkable
class SchedulerProtocol(Protocol):
    """Keeps schedules in a database and fires their ticks.

    Guaranteed, for all processes on one database together: a tick is recorded once, and the
    job or message it makes is committed with that record, or neither is; so jobs and messages
    are made exactly once per tick. An in-process callback runs at least once: it runs again
    when its process died before it was done. Ticks of one schedule fire in order. A clock that
    goes back fires nothing a second time.
    Not guaranteed: how soon after its time a tick fires, an order between schedules, and that a
    job is done before the next tick comes.
    Methods raise DatabaseError when the database fails; nothing was changed then. Calls inside a
    transaction of the same database join it.
    """

    async def create(self, schedule: Schedule) -> ScheduleInfo:
        """Keep a new schedule; its first tick is the first one after now.

        Raises InvalidScheduleError (a wrong cron field, an unknown zone, no tick left),
        ScheduleExistsError for a name that is taken; a second call is therefore refused.
        """
        ...

    async def update(self, schedule: Schedule) -> ScheduleInfo:
        """Replace the schedule of that name. Paused stays paused.

        When its times changed, the next tick is the first new one after now; else it stays.
        Raises like ``create``, ScheduleNotFoundError, and ScheduleStateError for one that is
        declared in code.
        """
        ...

    async def delete(self, name: str) -> bool:
        """Forget a schedule and its firings permanently; False when unknown.

        What it started goes on. Raises ScheduleStateError for one that is declared in code and
        active or paused: the next start would make it anew.
        """
        ...

    async def get(self, name: str) -> ScheduleInfo | None:
        """The schedule as it is now, or None."""
        ...

    async def schedules(self, state: ScheduleState | None = None) -> Sequence[ScheduleInfo]:
        """All schedules, or those in one state, by name."""
        ...

    async def pause(self, name: str) -> ScheduleInfo:
        """Fire no tick until ``resume``; ticks in between are not misfires. Twice is once.

        Raises ScheduleNotFoundError, and ScheduleStateError for one that cannot fire anyway.
        """
        ...

    async def resume(self, name: str) -> ScheduleInfo:
        """Fire again from the first tick after now. An active one stays as it is.

        Raises ScheduleNotFoundError, and ScheduleStateError for one that is not paused.
        """
        ...

    async def run_now(self, name: str) -> Firing:
        """Fire once, now, beside the ticks and whatever the state; every call fires.

        A job or message is committed when this returns; a callback is left to a running
        application that has it. Raises ScheduleNotFoundError and ScheduleTargetError.
        """
        ...

    async def upcoming(
        self, name: str, count: int = 5, after: datetime | None = None
    ) -> Sequence[datetime]:
        """Up to ``count`` ticks after ``after`` (default: now), in UTC, jitter left out.

        Whether it is paused does not matter. Raises ScheduleNotFoundError.
        """
        ...

    async def firings(self, name: str, limit: int = 20) -> Sequence[Firing]:
        """What was fired, latest first, as far back as it is kept."""
        ...
