"""``SchedulerProtocol`` on a database: keep schedules, change them, fire what is due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

import anyio
from attrs import frozen

from lexigram import clock
from lexigram.contracts.infra.schedule.errors import (
    InvalidScheduleError,
    ScheduleExistsError,
    ScheduleNotFoundError,
    ScheduleStateError,
)
from lexigram.contracts.infra.schedule.types import (
    CallbackTarget,
    Firing,
    FiringState,
    Schedule,
    ScheduleInfo,
    ScheduleOrigin,
    ScheduleState,
    check_schedule_name,
)
from lexigram.leasing import Backoff
from lexigram.schedule import store
from lexigram.schedule.config import ScheduleConfig
from lexigram.schedule.definition import read, same_times, written
from lexigram.schedule.report import Reporter
from lexigram.schedule.store import Row
from lexigram.schedule.targets import Targets
from lexigram.schedule.ticks import Calendar, Decision, millis, moment
from lexigram.sql import Database, is_transient
from lexigram.sql.leasing import WakeUp
from lexigram.sql.steps import Steps

T = TypeVar("T")

CHANNEL = "lexigram_schedules"
_RETRY = Backoff(first=1.0, cap=300.0)  # of a tick whose target refuses
_MOST = 100_000  # ticks or firings of one answer
_CALENDARS = 20_000  # checked schedules that are kept ready; one is about 1 kB


@frozen(kw_only=True)
class _Fired:
    """A tick recorded by this process, not reported yet."""

    schedule: Schedule
    tick: int
    due: int
    manual: bool = False


@frozen(kw_only=True)
class _Batch:
    """What one transaction did."""

    rows: int
    fired: list[tuple[_Fired, str | None]]
    decisions: list[tuple[str, Decision]]


class Scheduler:
    """Schedules in the tables of ``schedule/tables.py``.

    ``fire_due`` is one look at the clock: the runner calls it in a loop, a test with a fake
    clock calls it by hand. The clock is ``lexigram.clock`` of the process that looks.
    """

    def __init__(
        self,
        database: Database,
        config: ScheduleConfig | None = None,
        *,
        targets: Targets | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self.config = config or ScheduleConfig()
        self.wakeup = WakeUp(database, CHANNEL, poll=self.config.poll)
        self.targets = targets or Targets()
        self._db = database
        self._sql = store.STATEMENTS[database.dialect]
        self._reporter = reporter or Reporter()
        self._calendars: dict[tuple[str, str], Calendar] = {}

    # --- keep and change -----------------------------------------------------------------------

    async def create(self, schedule: Schedule) -> ScheduleInfo:
        """Keep a new schedule; its first tick is the first one after now."""
        calendar = await _calendar(schedule)
        self.targets.check(schedule)
        tick = calendar.first_after(_now())
        made = await self._change(
            lambda: _build_row(
                calendar, tick, ScheduleState.ACTIVE, ScheduleOrigin.RUNTIME, self.config.owner
            )
        )
        if not made:
            raise ScheduleExistsError(
                f"there is a schedule {schedule.name!r} already",
                details={"schedule": schedule.name},
                hint="take another name, or update() it",
            )
        return await self._get_info(schedule.name)

    async def update(self, schedule: Schedule) -> ScheduleInfo:
        """Replace the schedule of that name; paused stays paused."""
        calendar = await _calendar(schedule)
        self.targets.check(schedule)
        calendar.first_after(_now())

        def steps() -> Steps[None]:
            row = yield from self._lock_row(schedule.name)
            if row["origin"] == ScheduleOrigin.CODE:
                raise _declared(row, "changed", "change it there")
            yield from _replace(row, calendar, ScheduleOrigin.RUNTIME, row["owner"])

        await self._change(steps)
        return await self._get_info(schedule.name)

    async def delete(self, name: str) -> bool:
        """Forget a schedule and its firings permanently; False when unknown."""
        check_schedule_name(name)

        def steps() -> Steps[bool]:
            row = (yield self._sql.find_locked, (name,)).first()
            if row is None:
                return False
            if row["origin"] == ScheduleOrigin.CODE and row["state"] != ScheduleState.INACTIVE:
                raise _declared(row, "deleted", "remove it there, or pause it")
            yield store.DELETE, (name,)
            yield store.DELETE_FIRINGS, (name,)
            return True

        return await self._change(steps)

    async def declare(self, schedules: Sequence[Schedule]) -> None:
        """Keep what the code declares: new ones start, changed ones change, others stay.

        Raises ScheduleExistsError when a name was given to another schedule at run time.
        """
        calendars = [await _calendar(schedule) for schedule in schedules]

        def steps() -> Steps[None]:
            for calendar in calendars:
                yield from self._declared(calendar)

        await self._change(steps)

    async def retire(self, declared: Sequence[str]) -> Sequence[str]:
        """Make inactive what the code of this owner declared once and no longer does."""

        def steps() -> Steps[list[str]]:
            gone = list[str]()
            for row in (yield store.ALL, ()).rows:
                own = row["owner"] == self.config.owner and row["origin"] == ScheduleOrigin.CODE
                if own and row["name"] not in declared:
                    gone += [row["name"]] * (yield store.RETIRE, (row["name"],)).row_count
            return gone

        return await self._change(steps)

    async def pause(self, name: str) -> ScheduleInfo:
        """Fire no tick until ``resume``."""
        check_schedule_name(name)

        def steps() -> Steps[None]:
            row = yield from self._lock_row(name)
            if row["state"] == ScheduleState.PAUSED:
                return
            if row["state"] != ScheduleState.ACTIVE:
                raise _state(row, "paused", "only an active schedule can be paused")
            yield from _set(row, ScheduleState.PAUSED, None, None)

        await self._change(steps)
        return await self._get_info(name)

    async def resume(self, name: str) -> ScheduleInfo:
        """Fire again from the first tick after now."""
        check_schedule_name(name)
        await self._calendar_of(await self._row(name))

        def steps() -> Steps[None]:
            row = yield from self._lock_row(name)
            if row["state"] == ScheduleState.ACTIVE:
                return
            if row["state"] != ScheduleState.PAUSED:
                raise _state(row, "resumed", "only a paused schedule can be resumed")
            calendar = Calendar.of(read(row["name"], row["definition"]))
            tick = calendar.next(max(_now(), row["last_tick"] or 0))
            state = ScheduleState.FINISHED if tick is None else ScheduleState.ACTIVE
            yield from _set(row, state, tick, None if tick is None else calendar.due(tick))

        await self._change(steps)
        return await self._get_info(name)

    # --- look ----------------------------------------------------------------------------------

    async def get(self, name: str) -> ScheduleInfo | None:
        """The schedule as it is now, or None."""
        check_schedule_name(name)
        row = (await self._db.execute_query(store.FIND, (name,))).first()
        return None if row is None else _info(row)

    async def schedules(self, state: ScheduleState | None = None) -> Sequence[ScheduleInfo]:
        """All schedules, or those in one state, by name."""
        rows = (await self._db.execute_query(store.ALL)).rows
        return [_info(row) for row in rows if state is None or row["state"] == state]

    async def upcoming(
        self, name: str, count: int = 5, after: datetime | None = None
    ) -> Sequence[datetime]:
        """Up to ``count`` ticks after ``after`` (default: now), in UTC, jitter left out."""
        _check_count("count", count)
        check_schedule_name(name)
        calendar = await self._calendar_of(await self._row(name))
        ticks = calendar.walk(_now() if after is None else millis(after))
        return [moment(tick) for tick, _ in zip(ticks, range(count), strict=False)]

    async def firings(self, name: str, limit: int = 20) -> Sequence[Firing]:
        """What was fired, latest first, as far back as it is kept."""
        _check_count("limit", limit)
        check_schedule_name(name)
        rows = (await self._db.execute_query(store.FIRINGS, (name, limit))).rows
        return [_firing(row) for row in rows]

    async def next_due(self) -> int | None:
        """When the next tick of any schedule fires, in milliseconds since 1970; None: never."""
        found: int | None = (await self._db.execute_query(store.NEXT_DUE)).rows[0]["due"]
        return found

    # --- fire ----------------------------------------------------------------------------------

    async def run_now(self, name: str) -> Firing:
        """Fire once, now, beside the ticks and whatever the state."""
        check_schedule_name(name)
        schedule = (await self._get_info(name)).schedule
        self.targets.check(schedule)
        async with self._db.transaction():
            tick = await self._db.run_steps(lambda: self._record_by_hand(schedule))
            fired = _Fired(schedule=schedule, tick=tick, due=tick, manual=True)
            (reference,) = await self.targets.start([(schedule, tick)], manual=True)
            await self._refer([(fired, reference)])
        await self.wakeup.wake()
        await self._report_fired(fired, reference, tick)
        return _firing({**_build_firing(schedule, tick, tick, manual=True), "reference": reference})

    async def fire_due(self) -> int:
        """Fire every tick that is due now, and apply the misfire policies; how many fired.

        One that cannot be fired does not keep the others back: it is tried again later.
        """
        count = 0
        while True:
            now = _now()
            due = await self.next_due()
            if due is None or due > now:
                return count
            # A stop waits for the batch: what is committed is also emitted.
            batch = None
            with anyio.CancelScope(shield=True):
                batch = await self._fire_batch(now)
            if batch is None or not batch.rows:
                return count  # other processes are at it
            count += len(batch.fired)

    async def forget(self) -> int:
        """Remove records of firings that are older than ``keep_firings``; how many."""
        before = _now() - round(self.config.keep_firings * 1000)
        return (await self._db.execute(store.FORGET, (before,))).row_count

    async def failing(self) -> Sequence[ScheduleInfo]:
        """Schedules whose next tick could not be fired so far."""
        return [info for info in await self.schedules() if info.failures]

    async def _fire_batch(self, now: int) -> _Batch:
        claimed: list[Row] = []
        try:
            batch = await self._fire(now, self._sql.due, (now, self.config.batch), claimed)
        except Exception as error:
            # One of them is wrong, and its transaction is rolled back for all.
            if not claimed or is_transient(error):
                raise
            return await self._fire_each(now, claimed)
        await self._report(batch, now)
        return batch

    async def _fire_each(self, now: int, rows: Sequence[Row]) -> _Batch:
        fired: list[tuple[_Fired, str | None]] = []
        for row in rows:
            try:
                batch = await self._fire(now, self._sql.due_one, (now, row["name"]), [])
            except Exception as error:
                if is_transient(error):
                    raise
                await self._put_off(row, error)
            else:
                await self._report(batch, now)
                fired += batch.fired
        return _Batch(rows=len(rows), fired=fired, decisions=[])

    async def _fire(
        self, now: int, claim: str, params: tuple[object, ...], claimed: list[Row]
    ) -> _Batch:
        """One transaction: the ticks, the schedules moved on, and what the ticks start."""
        fired: list[_Fired] = []
        advances: list[Row] = []
        decisions: list[tuple[str, Decision]] = []
        async with self._db.transaction():
            rows = (await self._db.execute(claim, params)).rows
            claimed.extend(rows)
            for row, calendar in zip(rows, await self._calendars_of(rows), strict=True):
                most = max(1, self.config.batch - len(fired))
                decision = calendar.decide(row["next_tick"], now, most)
                decisions.append((row["name"], decision))
                advances.append(_advance(row["name"], decision))
                fired += [
                    _Fired(schedule=calendar.schedule, tick=tick, due=calendar.due(tick))
                    for tick in decision.fire
                ]
            records = [_build_firing(each.schedule, each.tick, now, manual=False) for each in fired]
            new = await self._db.run_steps(
                lambda: store.write_firings(self._sql, records, advances)
            )
            started = [each for each in fired if (each.schedule.name, each.tick, 0) in new]
            references = await self.targets.start(
                [(each.schedule, each.tick) for each in started], manual=False
            )
            done = list(zip(started, references, strict=True))
            await self._refer(done)
        return _Batch(rows=len(rows), fired=done, decisions=decisions)

    async def _refer(self, started: Sequence[tuple[_Fired, str | None]]) -> None:
        rows = [
            {
                "schedule": fired.schedule.name,
                "tick": fired.tick,
                "manual": int(fired.manual),
                "reference": reference,
            }
            for fired, reference in started
            if reference is not None
        ]
        if rows:
            await self._db.execute(self._sql.refer, (store.rows_as_json(rows),))

    async def _put_off(self, row: Row, error: Exception) -> None:
        known = (await self._db.execute_query(store.FIND, (row["name"],))).first()
        wait = _RETRY.delay(1 + (0 if known is None else known["failures"]))
        self._reporter.failed(row["name"], error, wait)
        due = _now() + round(wait * 1000)
        await self._db.execute(store.PUT_OFF, (due, str(error), row["name"], row["next_tick"]))

    async def _report(self, batch: _Batch, now: int) -> None:
        for name, decision in batch.decisions:
            if decision.missed is not None:
                await self._reporter.missed(name, *decision.missed)
        for fired, reference in batch.fired:
            await self._report_fired(fired, reference, now)

    async def _report_fired(self, fired: _Fired, reference: str | None, now: int) -> None:
        await self._reporter.fired(
            fired.schedule.name,
            fired.tick,
            now - fired.due,
            manual=fired.manual,
            reference=reference,
        )

    def _record_by_hand(self, schedule: Schedule) -> Steps[int]:
        now = tick = _now()
        while True:
            record = _build_firing(schedule, tick, now, manual=True)
            if (yield from store.write_firings(self._sql, [record], [])):
                return tick
            tick += 1  # two in one millisecond

    # --- parts ---------------------------------------------------------------------------------

    def _declared(self, calendar: Calendar) -> Steps[None]:
        name, owner = calendar.schedule.name, self.config.owner
        tick = calendar.next(_now())
        state = ScheduleState.FINISHED if tick is None else ScheduleState.ACTIVE
        if (yield from _build_row(calendar, tick, state, ScheduleOrigin.CODE, owner)):
            return
        row = yield from self._lock_row(name)
        if row["origin"] != ScheduleOrigin.CODE:
            raise ScheduleExistsError(
                f"schedule {name!r} is declared in code, but that name was given to another one "
                "at run time",
                details={"schedule": name},
                hint="rename it in the code, or delete the other one",
            )
        same = row["definition"] == written(calendar.schedule)
        if not same or row["state"] == ScheduleState.INACTIVE or row["owner"] != owner:
            yield from _replace(row, calendar, ScheduleOrigin.CODE, owner)

    def _lock_row(self, name: str) -> Steps[Row]:
        row = (yield self._sql.find_locked, (name,)).first()
        if row is None:
            raise _unknown(name)
        return row

    async def _row(self, name: str) -> Row:
        row = (await self._db.execute_query(store.FIND, (name,))).first()
        if row is None:
            raise _unknown(name)
        return row

    async def _get_info(self, name: str) -> ScheduleInfo:
        return _info(await self._row(name))

    async def _change(self, steps: store.StepsOf[T]) -> T:
        """One transaction, and a word to those who wait for the next tick."""
        answer = await self._db.run_steps(steps)
        await self.wakeup.wake()
        return answer

    async def _calendar_of(self, row: Row) -> Calendar:
        return (await self._calendars_of([row]))[0]

    async def _calendars_of(self, rows: Sequence[Row]) -> list[Calendar]:
        """Ready to compute with; new ones are checked in a thread, since zones are files."""
        if len(self._calendars) > _CALENDARS:
            self._calendars.clear()
        keys = [(row["name"], row["definition"]) for row in rows]
        new = [key for key in keys if key not in self._calendars]
        if new:
            made = await anyio.to_thread.run_sync(lambda: [Calendar.of(read(*key)) for key in new])
            self._calendars.update(zip(new, made, strict=True))
        return [self._calendars[key] for key in keys]


def _check_count(field: str, number: int) -> None:
    if type(number) is not int or not 0 <= number <= _MOST:
        raise InvalidScheduleError(
            f"{field} is not a whole number from 0 to {_MOST}",
            details={"field": field},
            hint="give a smaller one",
        )


async def _calendar(schedule: Schedule) -> Calendar:
    # In a thread: the first use of a zone reads a file.
    return await anyio.to_thread.run_sync(Calendar.of, schedule)


def _now() -> int:
    return millis(clock.now())


def _build_row(
    calendar: Calendar,
    tick: int | None,
    state: ScheduleState,
    origin: ScheduleOrigin,
    owner: str,
) -> Steps[bool]:
    schedule = calendar.schedule
    due = None if tick is None else calendar.due(tick)
    row = (schedule.name, written(schedule), state.value, origin.value, owner, tick, due)
    return (yield store.INSERT, row).row_count == 1


def _replace(row: Row, calendar: Calendar, origin: ScheduleOrigin, owner: str) -> Steps[None]:
    """Take over the new definition; ticks that were fired stay behind."""
    schedule = calendar.schedule
    tick: int | None = row["next_tick"]
    state = ScheduleState(row["state"])
    if state is not ScheduleState.PAUSED:
        if tick is None or not same_times(schedule, read(row["name"], row["definition"])):
            tick = calendar.next(max(_now(), row["last_tick"] or 0))
        state = ScheduleState.FINISHED if tick is None else ScheduleState.ACTIVE
    due = None if tick is None else calendar.due(tick)
    yield (
        store.REPLACE,
        (written(schedule), state.value, origin.value, owner, tick, due, schedule.name),
    )


def _set(row: Row, state: ScheduleState, tick: int | None, due: int | None) -> Steps[None]:
    yield (
        store.REPLACE,
        (row["definition"], state.value, row["origin"], row["owner"], tick, due, row["name"]),
    )


def _advance(name: str, decision: Decision) -> Row:
    finished = decision.next_tick is None
    return {
        "name": name,
        "next_tick": decision.next_tick,
        "due": decision.due,
        "last_tick": decision.fire[-1] if decision.fire else None,
        "state": (ScheduleState.FINISHED if finished else ScheduleState.ACTIVE).value,
    }


def _build_firing(schedule: Schedule, tick: int, now: int, *, manual: bool) -> Row:
    target = schedule.target
    callback = target.name if isinstance(target, CallbackTarget) else None
    return {
        "schedule": schedule.name,
        "tick": tick,
        "manual": int(manual),
        "fired": now,
        "state": (FiringState.PENDING if callback else FiringState.FIRED).value,
        "callback": callback,
        "lease": 0 if callback else None,
    }


def _info(row: Row) -> ScheduleInfo:
    def at(key: str) -> datetime | None:
        return None if row[key] is None else moment(row[key])

    return ScheduleInfo(
        schedule=read(row["name"], row["definition"]),
        state=ScheduleState(row["state"]),
        origin=ScheduleOrigin(row["origin"]),
        owner=row["owner"],
        next_tick=at("next_tick"),
        due_at=at("due"),
        last_tick=at("last_tick"),
        failures=row["failures"],
        last_error=row["last_error"],
    )


def _firing(row: Row) -> Firing:
    return Firing(
        schedule=row["schedule"],
        tick=moment(row["tick"]),
        fired_at=moment(row["fired"]),
        manual=bool(row["manual"]),
        state=FiringState(row["state"]),
        reference=row["reference"],
        error=row.get("error"),
    )


def _unknown(name: str) -> ScheduleNotFoundError:
    return ScheduleNotFoundError(
        f"there is no schedule {name!r}",
        details={"schedule": name},
        hint="`lexigram schedule ls` shows those there are",
    )


def _state(row: Row, what: str, rule: str) -> ScheduleStateError:
    return ScheduleStateError(
        f"schedule {row['name']!r} is {row['state']} and cannot be {what}",
        details={"schedule": row["name"], "state": row["state"]},
        hint=rule,
    )


def _declared(row: Row, what: str, fix: str) -> ScheduleStateError:
    return ScheduleStateError(
        f"schedule {row['name']!r} is declared in code and cannot be {what} at run time",
        details={"schedule": row["name"]},
        hint=fix,
    )
