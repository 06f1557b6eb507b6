"""Durable runs in SQLite: a claim is one transaction, a finish is one transaction.

BEGIN IMMEDIATE makes all of them follow each other. What PostgreSQL does in one statement is a few
here, each a few microseconds in the writer's thread.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import orjson

from lexigram import clock
from lexigram.contracts.data.sql.database import QueryResult
from lexigram.sql.locks.statements import NEXT_FENCE, TAKE
from lexigram.sql.steps import Many, Steps
from lexigram.workflow.durable.plan import EVENT_BITS, LifeCycleEvent
from lexigram.workflow.durable.store import _sqlite_statements as sql
from lexigram.workflow.durable.store import statements as shared
from lexigram.workflow.durable.store.base import DurableStore
from lexigram.workflow.durable.store.records import (
    CHANNEL,
    CHANNEL_WANTED,
    FINAL,
    Audience,
    Beat,
    Claimed,
    End,
    Ended,
    EndKind,
    GroupEvent,
    Reaped,
    Row,
    State,
    Tended,
    claim_from,
    event_from,
    group_events,
    lacks_text,
    make_ended,
)
from lexigram.workflow.durable.store.views import STEP_FACTOR


class SqliteDurableStore(DurableStore):
    """Its clock is that of the machine that all users of the file share."""

    ADD_KINDS = sql.ADD_KINDS
    ADD_STEPS = sql.ADD_STEPS
    ADD_RUNS = sql.ADD_RUNS
    KNOWN_RUNS = sql.KNOWN_RUNS
    LOCK_GROUP = sql.LOCK_GROUP
    LOCK_RUNS = sql.LOCK_RUNS
    RECOUNT = sql.RECOUNT
    SUSPECTS = sql.SUSPECTS
    WAITING_EVENTS = sql.WAITING_EVENTS
    WAITING_EVENTS_OF_GROUP = sql.WAITING_EVENTS_OF_GROUP

    # --- out ------------------------------------------------------------------------------------

    async def _claim(
        self, worker_id: str, lease: str, kinds: Sequence[int], batch: int | None, limit: int
    ) -> Claimed:
        """One transaction."""
        return await self._steps(lambda: self._claim_by_kind(worker_id, lease, kinds, batch, limit))

    def _claim_by_kind(
        self, worker_id: str, lease: str, kinds: Sequence[int], batch: int | None, limit: int
    ) -> Steps[Claimed]:
        """Kind by kind: of each the runs that come before the first of the next one, roughly."""
        now = clock.timestamp()
        left, claimed = list(kinds), list[Row]()
        while left and len(claimed) < limit:
            fits = (batch, batch, now)
            lines: Sequence[Row] = [{"kind": left[0]}]
            if len(left) > 1:
                lines = (yield sql.LINES, (_json(left), *fits)).rows
            if not lines:
                break
            kind = lines[0]["kind"]
            bound = lines[1]["rank"] + shared.MOMENT if len(lines) > 1 else math.inf
            params = (kind, bound, *fits, limit - len(claimed))
            candidates = (yield sql.CANDIDATES, params).rows
            got = yield from self._claim_candidates(candidates, worker_id, lease, now)
            claimed += got
            if len(lines) < 2:
                break
            if not got:
                left.remove(kind)
        kinds_there = (yield shared.COUNT_KINDS, ()).rows[0]["n"]
        if claimed:
            yield from self._begin_groups(claimed, now)
        return Claimed(claims=[claim_from(row) for row in claimed], kinds=kinds_there)

    def _claim_candidates(
        self, candidates: Sequence[Row], worker_id: str, lease: str, now: float
    ) -> Steps[list[Row]]:
        if not candidates:
            return []
        ids, fences = yield from self._grant_resources(candidates, lease, now)
        params = (now, self._terms.lease, self._terms.ageing, lease, worker_id, _json(ids))
        rows = (yield sql.CLAIM, params).rows
        for row in rows:
            row["lock_fence"] = fences.get(row["id"])
        rows.sort(key=lambda row: (row["rank"], row["id"]))  # RETURNING has no order
        return list(rows)

    def _begin_groups(self, claimed: Sequence[Row], now: float) -> Steps[None]:
        groups = {row["group_id"] for row in claimed}
        begun = yield sql.BEGIN_GROUPS, (now, _json(list(groups)))
        for row in begun.rows:
            for event in group_events(LifeCycleEvent.GROUP_START, row, 0, "running", now):
                yield shared.ADD_EVENT, event
        for run in claimed:
            if run["events"]:
                yield from _write_events(run, _events_of_begin(run), now)

    def _grant_resources(
        self, candidates: Sequence[Row], lease: str, now: float
    ) -> Steps[tuple[list[int], dict[int, int]]]:
        """Those that need no resource; of each resource the first, and who shares it with him."""
        ids: list[int] = []
        fences: dict[int, int] = {}
        # those that further ones can join, and the fence of each
        joined: dict[str, int | None] = {}
        for row in candidates:
            key = row["resource_key"]
            if key is not None:
                if key in joined:
                    fence = joined[key] if row["shares"] else None
                else:
                    fence = (yield NEXT_FENCE, ()).rows[0]["last"]
                    taken = (key, lease, "worker", "{}", fence, now, now + self._terms.lease)
                    fence = fence if (yield TAKE, taken).rows else None
                joined[key] = fence if row["shares"] else None
                if fence is None:
                    continue
                fences[row["id"]] = fence
            ids.append(row["id"])
        return ids, fences

    async def finish(self, ends: Sequence[End]) -> Sequence[Ended | None]:
        """One transaction."""
        if any(end.spawns for end in ends):
            return [await self._finish_alone(end) for end in ends]
        rows, news = await self._steps(lambda: self._finish(ends))
        if news:
            await self._notify(CHANNEL)
        done = {row["id"]: row for row in rows}
        return [make_ended(done[end.run_id]) if end.run_id in done else None for end in ends]

    def _finish(self, ends: Sequence[End]) -> Steps[tuple[Sequence[Row], bool]]:
        now = clock.timestamp()
        if all(map(_is_completed, ends)):
            given = [(end.run_id, end.step_no, end.lease, end.sticky) for end in ends]
            held = (yield sql.HELD_COMPLETED, (now, _json(given))).rows
        else:
            held = (yield sql.HELD, (now, _json([_fields(end) for end in ends]))).rows
        by_run = {end.run_id: end for end in ends}
        terms = {"now": now, "seconds": self._terms.lease, "ageing": self._terms.ageing}
        for row in held:
            end = by_run[row["id"]]
            row.update(terms, message=end.message, meta=end.meta)
        kept = [row for row in held if row["outcome"] == State.RUNNING]
        others = held if not kept else [row for row in held if row["outcome"] != State.RUNNING]
        if kept:
            yield sql.FINISH_KEPT, Many(kept)
        if others:
            yield sql.FINISH, Many(others)
        yield sql.FINISH_HISTORY, Many(held)
        freed = yield from self._unlock(held)
        done = [_after(row) for row in held]
        if any(row["events"] for row in done):
            for row in done:
                yield from _write_events(row, _events_of_end(row, by_run[row["id"]]), now)
        ended = yield from self._count_down(done, now)
        again = any(row["status"] in (State.READY, State.DELAYED) for row in done)
        return done, freed or again or ended

    def _unlock(self, held: Sequence[Row]) -> Steps[bool]:
        """Give back the locks that these held, and let in who waits for them."""
        locks = {
            (row["resource_key"], row["lease"])
            for row in held
            if row["resource_key"] is not None
            and not (row["outcome"] == State.RUNNING and row["next_key"] is not None)
        }
        freed = False
        for key, lease in locks:
            if (yield sql.UNLOCK, (key, lease)).row_count:
                freed = True
                yield sql.UNBLOCK, (key, key)
        return freed

    def _write_end(self, end: End, now: float) -> Steps[Row | None]:
        rows, _ = yield from self._finish([end])
        return rows[0] if rows else None

    def _count_down(self, done: Sequence[Row], now: float) -> Steps[bool]:
        """The decrement that reaches zero ends the group and writes the event."""
        final = [row for row in done if row["status"] in FINAL]
        if not final:
            return False
        ended = yield from self._gather(final)
        top = [row for row in final if row["parent_id"] is None]
        for group_id, n in Counter(row["group_id"] for row in top).items():
            mine = Counter(row["status"] for row in top if row["group_id"] == group_id)
            params = (now, group_id, n, mine[State.FAILED], mine[State.CANCELLED])
            group = (yield sql.COUNT_DOWN, params).rows[0]
            if group["started_at"] == now:
                for event in group_events(LifeCycleEvent.GROUP_START, group, 0, "running", now):
                    yield shared.ADD_EVENT, event
            if group["remaining"] == 0:
                ended = True
                end = (group["endings"], group["status"], now)
                for event in group_events(LifeCycleEvent.GROUP_END, group, *end):
                    yield shared.ADD_EVENT, event
        return ended

    def _gather(self, final: Sequence[Row]) -> Steps[bool]:
        """Count down the runs that made these."""
        by_parent: dict[tuple[int, int], Counter[bool]] = {}
        for row in final:
            if row["parent_id"] is not None:
                counts = by_parent.setdefault((row["parent_id"], row["parent_step"]), Counter())
                counts[row["status"] == State.COMPLETED] += 1
        for (parent_id, step_no), counts in by_parent.items():
            n = counts.total()
            yield sql.GATHER, (n, counts[False], n, parent_id, step_no)
        return bool(by_parent)

    async def heartbeat(
        self,
        worker_id: str,
        held: Sequence[tuple[int, str]] = (),
        lacks: Sequence[int] = (),
        lacks_handlers: Sequence[str] = (),
    ) -> Sequence[Beat]:
        """One transaction."""
        lacking = lacks_text(lacks, lacks_handlers)
        return await self._steps(lambda: self._heartbeat(worker_id, held, lacking))

    def _heartbeat(
        self, worker_id: str, held: Sequence[tuple[int, str]], lacks: str
    ) -> Steps[list[Beat]]:
        now = clock.timestamp()
        until = now + self._terms.lease
        yield sql.CHECK_IN, (worker_id, now, now, until, lacks)
        kept: dict[tuple[int, str], Row] = {}
        if held:
            for row in (yield sql.KEEP, (until, _json(held))).rows:
                key = row["resource_key"]
                if key is not None:
                    lock = (until, key, row["lease"], now)
                    if not (yield sql.KEEP_LOCK, lock).row_count:
                        continue
                kept[row["id"], row["lease"]] = row
        return [
            Beat(
                run_id=run_id,
                lease=lease,
                is_kept=(run_id, lease) in kept,
                wanted=kept.get((run_id, lease), {}).get("wanted"),
            )
            for run_id, lease in held
        ]

    async def reap(self, own: Sequence[str], held: Sequence[str] | None = None) -> Reaped:
        """One transaction."""
        leases = [None] if held is None else held  # nothing is outside of a list with NULL
        reaped = await self._steps(lambda: self._reap(_json(own), _json(leases)))
        if reaped.steps:
            await self._notify(CHANNEL)
        return reaped

    def _reap(self, own: str, leases: str) -> Steps[Reaped]:
        now = clock.timestamp()
        if not (yield sql.STEADY, (now, now - self._terms.lease / 2, own)).rows[0]["is_steady"]:
            return Reaped(workers=[], steps=[])
        held = (yield sql.EXPIRED, (self._terms.max_lost, now, own, leases)).rows
        for row in held:
            outcome = row["outcome"]
            message = (outcome, row["message"])
            yield sql.TAKE_BACK, (outcome, now, now, outcome, now, *message, row["id"])
            attempt = (row["id"], row["fence"], row["step_no"], row["retry"], outcome)
            when = (row["worker_id"], row["step_started_at"], now)
            yield sql.REAPED_ATTEMPT, (*attempt, *when, row["message"], row["meta"])
            if (key := row["resource_key"]) is not None:
                yield sql.UNLOCK, (key, row["lease"])
                yield sql.UNBLOCK, (key, key)
        done = [{**row, "status": row["outcome"]} for row in held]
        for row in done:
            if row["events"] and row["status"] == State.FAILED:
                yield from _write_events(row, _gave_up(row), now)
        yield from self._count_down(done, now)
        gone = (yield sql.CHECK_OUT_DEAD, (now, own)).rows
        return Reaped(
            workers=sorted({row["worker_id"] for row in [*held, *gone]}),
            steps=sorted(_step_id(row) for row in held),
            poison=sorted(_step_id(row) for row in held if row["outcome"] == State.FAILED),
        )

    # --- by time --------------------------------------------------------------------------------

    async def tend(self) -> Tended:
        """One transaction."""
        tended = await self._steps(self._tend)
        if tended.promoted:
            await self._notify(CHANNEL)
        return tended

    def _tend(self) -> Steps[Tended]:
        now = clock.timestamp()
        promoted = (yield sql.PROMOTE, (now,)).row_count
        yield sql.PARK, (now,)
        for row in (yield sql.FREE_KEYS, (now,)).rows:
            promoted += (yield sql.UNBLOCK, (row["k"], row["k"])).row_count
        due = yield sql.NEXT_DUE, (now,)
        return Tended(promoted=promoted, next_due=due.rows[0]["seconds"])

    # --- by hand --------------------------------------------------------------------------------

    async def cancel(self, *, group_id: int | None, run_id: int | None) -> int:
        """One transaction."""

        def steps() -> Steps[int]:
            now = clock.timestamp()
            running = yield sql.CANCEL_RUNNING, (now, group_id, run_id)
            done = (yield sql.CANCEL_WAITING, (now, now, group_id, run_id)).rows
            yield from self._count_down(done, now)
            return running.row_count + len(done)

        return await self._change(steps, CHANNEL_WANTED)

    async def pause(self, *, group_id: int | None, run_id: int | None) -> int:
        """One transaction."""

        def steps() -> Steps[int]:
            return (yield sql.PAUSE, (clock.timestamp(), group_id, run_id)).row_count

        return await self._change(steps, CHANNEL_WANTED)

    async def resume(self, *, group_id: int | None, run_id: int | None) -> int:
        """One transaction."""

        def steps() -> Steps[int]:
            now = clock.timestamp()
            return (yield sql.RESUME, (now, now, group_id, run_id)).row_count

        return await self._change(steps, CHANNEL)

    async def retry(self, *, group_id: int | None, run_id: int | None, hard: bool) -> int:
        """One transaction."""

        def steps() -> Steps[int]:
            rows = (yield sql.TO_RETRY, (group_id, run_id, hard)).rows
            now = clock.timestamp()
            yield sql.RESET, (now, now, _json([row["id"] for row in rows]))
            for row in rows:
                if row["lease"] is not None and row["resource_key"] is not None:
                    yield sql.UNLOCK, (row["resource_key"], row["lease"])
            made = {row["parent_id"] for row in rows if row["parent_id"] is not None}
            made |= {row["id"] for row in rows if row["fan"] is not None}
            if made:
                yield sql.RECOUNT, (_json(sorted(made)),)
            final = [row for row in rows if row["status"] in FINAL and row["parent_id"] is None]
            for group in {row["group_id"] for row in final}:
                mine = Counter(row["status"] for row in final if row["group_id"] == group)
                counts = (mine.total(), mine[State.FAILED], mine[State.CANCELLED])
                yield sql.REOPEN, (*counts, group)
            return len(rows)

        return await self._change(steps, CHANNEL)

    async def _change(self, steps: Any, channel: str) -> int:
        changed: int = await self._steps(steps)
        if changed:
            await self._notify(channel)
        return changed

    async def prune(self, older_than: float, limit: int) -> int:
        """Many small transactions, so that claims come in between."""
        old = await self._query(shared.OLD_GROUPS, (clock.timestamp() - older_than, limit))
        removed = 0
        for row in old.rows:
            while gone := await self._steps(lambda group=row["id"]: self._forget(group)):  # type: ignore[misc]
                removed += gone
        return removed

    def _forget(self, group_id: int) -> Steps[int]:
        found = (yield sql.SOME_RUNS, (group_id,)).rows
        ids = _json([row["id"] for row in found])
        if found:
            yield sql.FORGET_HISTORY, (ids,)
            yield sql.FORGET_RUNS, (ids,)
        else:
            yield from self._forget_group(group_id)
        return len(found)

    async def take_events(
        self,
        lease: str,
        *,
        seconds: float,
        limit: int = 10,
        kinds: Sequence[LifeCycleEvent] = tuple(LifeCycleEvent),
        audience: Audience = Audience.LISTENER,
        worker_id: str | None = None,
        left: Sequence[int] = (),
    ) -> Sequence[GroupEvent]:
        """One transaction."""

        def steps() -> Steps[QueryResult]:
            now = clock.timestamp()
            steady = (worker_id, worker_id, now, now - self._terms.lease / 2)
            which = (_json([*kinds]), _json(left))
            params = (lease, now + seconds, *which, now, *steady, limit)
            return (yield sql.TAKE_EVENTS_OF[audience], params)

        found = await self._steps(steps)
        return sorted((event_from(row) for row in found.rows), key=lambda event: event.id)

    def _list(self, values: Sequence[Any]) -> Any:
        return _json(values)


_Happened: TypeAlias = tuple[LifeCycleEvent, int, int, str]  # with step, fence, status


def _write_events(row: Row, happened: Sequence[_Happened], now: float) -> Steps[None]:
    """Write those that handlers of the plan wait for."""
    for kind, step_no, fence, status in happened:
        if row["events"] & EVENT_BITS[kind]:
            event = (kind, row["group_id"], fence, status, now, row["id"], step_no)
            yield shared.ADD_EVENT, (*event, Audience.HANDLER)


def _events_of_begin(row: Row) -> Sequence[_Happened]:
    started = (row["step_no"], row["fence"], "running")
    first = [(LifeCycleEvent.ITEM_START, *started)] if row["fence"] == 1 else []
    return [*first, (LifeCycleEvent.STEP_START, *started)]


def _events_of_end(row: Row, end: End) -> Sequence[_Happened]:
    goes_on = row["status"] == State.RUNNING
    fence = row["fence"] - 1 if goes_on else row["fence"]
    done = (end.step_no, fence, "completed")
    happened: list[_Happened] = []
    if end.kind is EndKind.COMPLETED:
        happened.append((LifeCycleEvent.STEP_END, *done))
    if end.kind is EndKind.FAILED and row["status"] != State.FAILED:
        happened.append((LifeCycleEvent.STEP_FAILED, end.step_no, fence, "failed"))
    if row["status"] == State.COMPLETED:
        happened.append((LifeCycleEvent.ITEM_END, *done))
    if row["status"] == State.FAILED:
        happened += _gave_up({"step_no": end.step_no, "fence": fence})
    if goes_on:
        happened.append((LifeCycleEvent.STEP_START, row["step_no"], row["fence"], "running"))
    return happened


def _gave_up(row: Row) -> Sequence[_Happened]:
    failed = (row["step_no"], row["fence"], "failed")
    return [(LifeCycleEvent.STEP_FAILED, *failed), (LifeCycleEvent.ITEM_FAILED, *failed)]


def _fields(end: End) -> Sequence[Any]:
    """In the order of _END."""
    children = sum(len(spawn.runs) for spawn in end.spawns) if end.spawns else None
    attempt = (end.run_id, end.step_no, end.lease, end.sticky, end.kind)
    return (*attempt, end.jitter, end.fatal, end.next_no, children)


def _is_completed(end: End) -> bool:
    return end.kind is EndKind.COMPLETED and end.next_no is None and not end.spawns


def _after(row: Row) -> dict[str, Any]:
    """What sql.FINISH made of a run: the answer, without reading it again."""
    keeps, advances = row["outcome"] == State.RUNNING, row["advances"]
    return {
        "id": row["id"],
        "group_id": row["group_id"],
        "status": row["outcome"],
        "step_no": row["next_no"] if advances else row["step_no"],
        "retry": 0 if advances else row["retry"] + row["is_error"],
        "fence": row["fence"] + 1 if keeps else row["fence"],
        "parent_id": row["parent_id"],
        "parent_step": row["parent_step"],
        "events": row["events"],
    }


def _step_id(row: Row) -> int:
    number: int = row["id"] * STEP_FACTOR + row["step_no"]
    return number


def _json(values: Sequence[Any]) -> str:
    return orjson.dumps(values).decode()
