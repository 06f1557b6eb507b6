"""The part of the store that is the same on SQLite and PostgreSQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import anyio
from attrs import evolve

from lexigram import clock
from lexigram.contracts.data.sql.database import DatabaseError, QueryResult
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.contracts.workflow.limits import MAX_PRIORITY, MIN_PRIORITY
from lexigram.leasing import Backoff
from lexigram.sql.database import Database
from lexigram.sql.errors import TransactionScopeError, is_file_lost
from lexigram.sql.leasing import lease_now
from lexigram.sql.steps import Step, Steps
from lexigram.workflow.durable.errors import DurableError, PlanInvalidError, is_outage
from lexigram.workflow.durable.plan import LifeCycleEvent, NewRun, RunPlan, list_lifecycle_handlers
from lexigram.workflow.durable.store import statements as shared
from lexigram.workflow.durable.store.records import (
    CHANNEL,
    Audience,
    Beat,
    Child,
    Claimed,
    End,
    Ended,
    GroupEvent,
    Handled,
    Reaped,
    Row,
    Selection,
    State,
    StepKind,
    Submitted,
    Tended,
    Terms,
    Unserved,
    child_from,
    group_events,
    make_ended,
    make_handled,
    read_lacking_handlers,
    runs_json,
    steps_json,
)

T = TypeVar("T")

_AGAIN = Backoff(first=0.05, cap=5.0)

# Seconds that a lease may end later than ours would: other workers may have longer ones.
_SET_BACK = 3600.0

# How runs begin that a step made, by what became of the run that made them.
_MAKES = {State.WAITING: State.READY, State.PAUSED: State.PAUSED, State.CANCELLED: State.CANCELLED}


class DurableStore(ABC):
    """Keeps durable runs. Every method is one transaction; time is the store's own clock.

    Every write of a worker carries its lease: a write with a lost lease changes nothing, and the
    result reports it. This class has what is the same on every database; ``postgres`` and
    ``sqlite`` have the rest. Methods raise DurableError when the database fails.
    """

    ADD_KINDS: ClassVar[str]
    ADD_STEPS: ClassVar[str]
    ADD_RUNS: ClassVar[str]
    KNOWN_RUNS: ClassVar[str]
    LOCK_GROUP: ClassVar[str]
    LOCK_RUNS: ClassVar[str]
    RECOUNT: ClassVar[str]
    SUSPECTS: ClassVar[str]
    WAITING_EVENTS: ClassVar[str]
    WAITING_EVENTS_OF_GROUP: ClassVar[str]

    def __init__(self, database: Database, terms: Terms) -> None:
        self._db = database
        self._terms = terms

    # --- what each database does in its own way -------------------------------------------------

    @abstractmethod
    async def _claim(
        self, worker_id: str, lease: str, kinds: Sequence[int], batch: int | None, limit: int
    ) -> Claimed:
        """Up to ``limit`` steps of these kinds."""

    @abstractmethod
    async def finish(self, ends: Sequence[End]) -> Sequence[Ended | None]:
        """Write many ends at once; None where the lease was lost."""

    @abstractmethod
    async def heartbeat(
        self,
        worker_id: str,
        held: Sequence[tuple[int, str]] = (),
        lacks: Sequence[int] = (),
        lacks_handlers: Sequence[str] = (),
    ) -> Sequence[Beat]:
        """Check in and renew the leases ``(run id, lease)``; what became of each.

        ``lacks`` are the kinds of steps that the worker cannot claim, ``lacks_handlers`` the
        lifecycle handlers that it has not, as of its last lookup.
        """

    @abstractmethod
    async def reap(self, own: Sequence[str], held: Sequence[str] | None = None) -> Reaped:
        """Take steps back whose lease is over; never from the workers named in ``own``.

        None when none of ``own`` has checked in without a gap for half a lease: a database that
        hung, or a machine that slept, kept the others from it as well, and they need a moment.
        With ``held``, the current leases of those workers: what has another lease is taken
        back from them too. They lost track of it when the database did not answer.
        """

    @abstractmethod
    async def tend(self) -> Tended:
        """Make claimable what is due by time or by a free resource."""

    @abstractmethod
    async def cancel(self, *, group_id: int | None, run_id: int | None) -> int:
        """Cancel what is not final; how many runs."""

    @abstractmethod
    async def pause(self, *, group_id: int | None, run_id: int | None) -> int:
        """Pause runs; how many."""

    @abstractmethod
    async def resume(self, *, group_id: int | None, run_id: int | None) -> int:
        """Resume paused runs; how many."""

    @abstractmethod
    async def retry(self, *, group_id: int | None, run_id: int | None, hard: bool) -> int:
        """Begin failed and cancelled runs again, or with ``hard`` all that are not completed."""

    @abstractmethod
    async def prune(self, older_than: float, limit: int) -> int:
        """Remove up to ``limit`` groups that ended so many seconds ago; how many runs."""

    @abstractmethod
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
        """Events to deliver, for so many seconds; others get them again after that.

        Starts and ends of groups are there for listeners; those of runs and steps, too, for the
        handlers of plans that have some. A worker gets those of others whose lease is over only
        while it checks in itself; see ``reap``. ``left`` are events that it leaves to others.
        """

    @abstractmethod
    def _write_end(self, end: End, now: float) -> Steps[Row | None]:
        """Write one end; the row of the run after it."""

    @abstractmethod
    def _list(self, values: Sequence[Any]) -> Any:
        """Values as the one parameter that a statement asks ``IN``."""

    # --- in -------------------------------------------------------------------------------------

    async def submit(
        self, plan: RunPlan, runs: Sequence[NewRun], name: str | None, key: str | None
    ) -> Submitted:
        """One transaction: the plan if it is new, the group, the runs."""
        answer = await self._steps(lambda: self._submit(plan, runs, name, key))
        await self._notify(CHANNEL)
        return answer

    def _submit(
        self, plan: RunPlan, runs: Sequence[NewRun], name: str | None, key: str | None
    ) -> Steps[Submitted]:
        now = yield from lease_now(self._db.dialect)
        plan_id = yield from self._plan_id(plan, now)
        batches = {run.batch_id for run in runs}
        batch_id = batches.pop() if len(batches) == 1 else None
        row = (
            yield (
                shared.ADD_GROUP,
                (name, plan.workflow_id, plan.param_id, batch_id, now, key, plan_id, plan.events),
            )
        ).first()
        if row is None:
            group_id = (yield shared.FIND_GROUP, (key,)).rows[0]["id"]
            known = yield shared.RUNS_OF_GROUP, (group_id,)
            return Submitted(
                group_id=group_id, runs=[item["id"] for item in known.rows], is_new=False
            )
        group_id = row["id"]
        place = (now, None, None, State.READY)
        added = yield self._add_runs(now, group_id, plan_id, plan, place, runs)
        return (yield from self._collect_ids(group_id, runs, added.rows))

    def _add_runs(
        self,
        now: float,
        group_id: int,
        plan_id: int,
        plan: RunPlan,
        place: tuple[float, int | None, int | None, str],
        runs: Sequence[NewRun],
    ) -> Step:
        """``place``: since when they stand in line, who made them at which step, their status."""
        terms = (len(plan.steps), self._terms.ageing, self._terms.tenant_gap, plan.events)
        return self.ADD_RUNS, (now, group_id, plan_id, *terms, *place, runs_json(runs))

    # --- runs that runs make --------------------------------------------------------------------

    async def _finish_alone(self, end: End) -> Ended | None:
        """One transaction: the end, and the runs that the step makes."""
        ended = await self._steps(lambda: self._finish_spawning(end))
        await self._notify(CHANNEL)
        return ended

    def _finish_spawning(self, end: End) -> Steps[Ended | None]:
        now = yield from lease_now(self._db.dialect)
        plans: list[int] = []
        for spawn in end.spawns:
            plan_id = yield from self._plan_id(spawn.plan, now)
            plans.append(plan_id)
        row = yield from self._write_end(end, now)
        if row is None:
            return None
        if any(spawn.runs for spawn in end.spawns) and row["status"] not in _MAKES:
            raise PlanInvalidError(
                f"step {end.step_no} of run {end.run_id} makes runs and is the last one",
                hint="add a step after it: it is claimed when they are final",
            )
        parent = (yield shared.RUN, (end.run_id,)).rows[0]
        for plan_id, spawn in zip(plans, end.spawns, strict=True):
            if not spawn.runs:
                continue
            place = (parent["turn"], end.run_id, end.step_no, _MAKES[row["status"]])
            runs = [_child(run, parent) for run in spawn.runs]
            yield self._add_runs(now, parent["group_id"], plan_id, spawn.plan, place, runs)
        return make_ended(row)

    async def begin_step(self, run_id: int, lease: str) -> bool:
        """A step begins whose worker ended before; False when the lease is lost."""
        found = await self._steps(lambda: self._alone(shared.BEGIN_STEP, (run_id, lease)))
        return found.row_count == 1

    async def children(self, run_id: int, step_no: int | None) -> Sequence[Child]:
        """The runs that a step of a run made; None is the last step that made some."""
        found = await self._query(shared.CHILDREN, (run_id, step_no, run_id, run_id))
        return [child_from(row) for row in found.rows]

    async def answer(self, run_id: int, answer: str) -> bool:
        """Resume a parked run with the answer; False when it is not parked."""

        def steps() -> Steps[bool]:
            now = yield from lease_now(self._db.dialect)
            return (yield shared.ANSWER, (answer, now, now, run_id)).row_count == 1

        answered = await self._steps(steps)
        if answered:
            await self._notify(CHANNEL)
        return answered

    def _plan_id(self, plan: RunPlan, now: float) -> Steps[int]:
        digest = plan.digest
        found = (yield shared.FIND_PLAN, (digest,)).first()
        if found is not None:
            return int(found["id"])
        yield shared.ADD_PLAN, (digest, plan.workflow_id, plan.param_id, plan.body, now)
        plan_id = int((yield shared.FIND_PLAN, (digest,)).rows[0]["id"])
        steps = steps_json(plan.steps)
        yield self.ADD_KINDS, (steps,)
        yield self.ADD_STEPS, (plan_id, steps)
        return plan_id

    def _collect_ids(
        self, group_id: int, runs: Sequence[NewRun], added: Sequence[Row]
    ) -> Steps[Submitted]:
        """The id of each run; those whose key was there before keep their group."""
        fresh = iter(sorted(row["id"] for row in added if row["idempotency_key"] is None))
        by_key: dict[str, int] = {row["idempotency_key"]: row["id"] for row in added}
        keys = [run.idempotency_key for run in runs if run.idempotency_key is not None]
        missing = [key for key in keys if key not in by_key]
        first_group = group_id
        if missing:
            known = (yield self.KNOWN_RUNS, (self._list(missing),)).rows
            by_key |= {row["idempotency_key"]: row["id"] for row in known}
            first_group = known[0]["group_id"]
        ids = [
            next(fresh) if run.idempotency_key is None else by_key[run.idempotency_key]
            for run in runs
        ]
        if not added:
            yield shared.DROP_GROUP, (group_id,)
            return Submitted(group_id=first_group, runs=ids, is_new=False)
        yield shared.FILL_GROUP, (len(added), len(added), group_id)
        return Submitted(group_id=group_id, runs=ids)

    # --- claiming -------------------------------------------------------------------------------

    async def claim(self, worker_id: str, lease: str, selection: Selection, limit: int) -> Claimed:
        """Up to ``limit`` steps at once, all under one lease."""
        kinds = selection.kinds
        if kinds is None:
            kinds = [kind.id for kind in await self.kinds() if selection.takes(kind.queue)]
        return await self._claim(worker_id, lease, kinds, selection.batch_id, limit)

    async def kinds(self) -> Sequence[StepKind]:
        """All kinds of steps, with how long their first run waits."""
        return [StepKind(**row) for row in (await self._query(shared.KINDS, ())).rows]

    async def unserved(self, group_id: int | None = None) -> Sequence[Unserved]:
        """What runs wait for though no live worker has it, the longest first."""

        def steps() -> Steps[list[Unserved]]:
            now = yield from lease_now(self._db.dialect)
            if group_id is None:
                found = yield shared.UNSERVED, (now,)
            else:
                found = yield shared.UNSERVED_OF_GROUP, (group_id, now, now)
            handlers = yield from self._find_missing_handlers(group_id, now)
            every = [*(Unserved(**row) for row in found.rows), *handlers]
            return sorted(every, key=lambda one: one.waits_since)

        return await translate_errors(lambda: self._db.read_steps(steps))

    def _find_missing_handlers(self, group_id: int | None, now: float) -> Steps[Sequence[Unserved]]:
        """Lifecycle handlers that events wait for and no live worker has.

        The events are read only when all live workers lack the same handler, or none lives.
        """
        lacks = [read_lacking_handlers(row["lacks"]) for row in (yield shared.LACKS, (now,)).rows]
        missing = lacks[0].intersection(*lacks) if lacks else None
        # As for steps: nothing for a group while no worker lives at all.
        if missing == frozenset() or (missing is None and group_id is not None):
            return []
        if group_id is None:
            found = yield self.WAITING_EVENTS, ()
        else:
            found = yield self.WAITING_EVENTS_OF_GROUP, (group_id,)
        waiting = _list_waiting(found.rows)
        return [one for one in waiting if missing is None or one.handler in missing]

    # --- repairs --------------------------------------------------------------------------------

    async def reconcile(self, group_id: int | None = None) -> int:
        """Count groups anew, one transaction each; how many were wrong."""
        if group_id is not None:
            return await self._repair(group_id)
        await self._steps(self._cap_leases)
        repaired, after = 0, 0
        while True:
            found = await self._query(shared.OPEN_GROUPS, (after,))
            if not found.rows:
                return repaired
            ids = self._list([row["id"] for row in found.rows])
            after = found.rows[-1]["id"]
            for row in (await self._query(self.SUSPECTS, (ids, ids))).rows:
                repaired += await self._repair(row["id"])

    async def _repair(self, group_id: int) -> int:
        # Two transactions: who ends a run locks first the one that made it, then the group.
        stuck = await self._steps(lambda: self._resume_stuck(group_id))
        return max(stuck, await self._steps(lambda: self._repair_group(group_id)))

    def _resume_stuck(self, group_id: int) -> Steps[int]:
        """Runs that wait for nothing are ready; whether there were some."""
        stuck = [row["id"] for row in (yield shared.STUCK, (group_id,)).rows]
        if stuck:
            yield self.LOCK_RUNS, (self._list(stuck),)
            yield self.RECOUNT, (self._list(stuck),)
        return 1 if stuck else 0

    def _cap_leases(self) -> Steps[None]:
        now = yield from lease_now(self._db.dialect)
        lease = self._terms.lease
        yield shared.CAP_LEASES, (now + lease, now + lease + _SET_BACK)

    def _repair_group(self, group_id: int) -> Steps[int]:
        group = (yield self.LOCK_GROUP, (group_id,)).first()
        if group is None:
            return 0
        now = yield from lease_now(self._db.dialect)
        counted = (yield shared.COUNT_GROUP, (group_id,)).rows[0]
        right = _standing(group, counted, now)
        if all(group[name] == value for name, value in right.items()):
            return 0
        yield (
            shared.REPAIR_GROUP,
            (*(right[name] for name in shared.REPAIRED), group_id),
        )
        if right["endings"] > group["endings"]:
            status, kind = right["status"], LifeCycleEvent.GROUP_END
            for params in group_events(kind, group, right["endings"], status, now):
                yield shared.ADD_EVENT, params
        return 1

    def _forget_group(self, group_id: int) -> Steps[None]:
        """The rest of a group whose runs are gone."""
        if (yield shared.DROP_OLD_GROUP, (group_id, group_id)).row_count:
            yield shared.FORGET_EVENTS, (group_id,)
            yield shared.FORGET_LIFECYCLE, (group_id,)

    # --- events ---------------------------------------------------------------------------------

    async def take_group_end(self, group_id: int) -> RunStatus | None:
        """The status, for one caller per end of the group."""

        def steps() -> Steps[RunStatus | None]:
            now = yield from lease_now(self._db.dialect)
            row = (yield shared.TAKE_GROUP_END, (now, group_id, now, group_id)).first()
            return None if row is None else RunStatus(row["status"].upper())

        return await self._steps(steps)

    async def settle_event(self, event: GroupEvent, *, retry_in: float | None = None) -> bool:
        """Mark it as delivered, or to be retried; False when another worker has it now."""

        def steps() -> Steps[bool]:
            now = yield from lease_now(self._db.dialect)
            when = (now, None) if retry_in is None else (None, now + retry_in)
            return (yield shared.SETTLE_EVENT, (*when, event.id, event.lease)).row_count == 1

        return await self._steps(steps)

    async def keep_events(self, held: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
        """Renew leases of events; those that are kept."""

        def steps() -> Steps[list[tuple[int, str]]]:
            now = yield from lease_now(self._db.dialect)
            until = now + self._terms.lease
            kept: list[tuple[int, str]] = []
            for event_id, lease in held:
                if (yield shared.HOLD_EVENT, (until, event_id, lease)).row_count:
                    kept.append((event_id, lease))
            return kept

        return await self._steps(steps)

    async def plan_of_event(self, event: GroupEvent) -> int | None:
        params = (event.run_id or 0, event.group_id)
        plan_id: int | None = (await self._query(shared.PLAN_OF_EVENT, params)).rows[0]["plan_id"]
        return plan_id

    async def list_handled(self, event_id: int) -> Sequence[Handled]:
        """The outcome of the handlers of an event so far."""
        return [make_handled(row) for row in (await self._query(shared.HANDLED, (event_id,))).rows]

    async def lifecycle(self, group_id: int) -> Sequence[Handled]:
        """The outcome of all handlers of a group, its runs and steps."""
        found = await self._query(shared.LIFECYCLE, (group_id,))
        return [make_handled(row) for row in found.rows]

    async def begin_handler(
        self, event: GroupEvent, number: int, name: str, worker_id: str
    ) -> bool:
        """Record that a handler begins; False when another worker has the event now."""

        def steps() -> Steps[bool]:
            now = yield from lease_now(self._db.dialect)
            until = now + self._terms.lease
            if not (yield shared.HOLD_EVENT, (until, event.id, event.lease)).row_count:
                return False
            place = (event.kind, event.group_id, event.run_id or 0, event.step_no or 0)
            yield shared.BEGIN_HANDLER, (event.id, number, name, *place, worker_id, now)
            return True

        return await self._steps(steps)

    async def end_handler(
        self,
        event: GroupEvent,
        number: int,
        status: RunStatus,
        message: str | None,
        meta: str | None,
    ) -> bool:
        """Record that a handler ended; False when another worker has the event now."""

        def steps() -> Steps[bool]:
            now = yield from lease_now(self._db.dialect)
            until = now + self._terms.lease
            if not (yield shared.HOLD_EVENT, (until, event.id, event.lease)).row_count:
                return False
            yield shared.END_HANDLER, (status, now, message, meta, event.id, number, status)
            return True

        return await self._steps(steps)

    # --- duties ---------------------------------------------------------------------------------

    async def take_duty(self, name: str, every: float) -> bool:
        """True for one worker in so many seconds."""

        def steps() -> Steps[bool]:
            now = yield from lease_now(self._db.dialect)
            params = (now + every, name, now, now + every)
            if (yield shared.TAKE_DUTY, params).row_count:
                return True
            if (yield shared.ADD_DUTY, (name,)).row_count:
                return bool((yield shared.TAKE_DUTY, params).row_count)
            return False

        return await self._steps(steps)

    # --- to look at -----------------------------------------------------------------------------

    async def check_out(self, worker_id: str) -> None:
        await self._steps(lambda: self._alone(shared.CHECK_OUT, (worker_id,)))

    async def plan(self, plan_id: int) -> RunPlan | None:
        row = (await self._query(shared.PLAN, (plan_id,))).first()
        return None if row is None else RunPlan.from_body(row["body"])

    async def run(self, run_id: int) -> Row | None:
        return (await self._query(shared.RUN, (run_id,))).first()

    async def group(self, group_id: int) -> Row | None:
        return (await self._query(shared.GROUP, (group_id,))).first()

    async def stats(self, group_id: int) -> Row | None:
        return (await self._query(shared.STATS, (group_id,))).first()

    async def steps(self, run_id: int) -> Sequence[Row]:
        return (await self._query(shared.STEPS, (run_id,))).rows

    async def open_questions(self, group_id: int | None, limit: int, offset: int) -> Sequence[Row]:
        """What runs wait for, of all runs or those of a group."""
        params = (group_id, group_id, limit, offset)
        return (await self._query(shared.OPEN_QUESTIONS, params)).rows

    async def questions_of_run(self, run_id: int) -> Sequence[Row]:
        """What a run, and all that it made, waits for."""
        return (await self._query(shared.QUESTIONS_OF_RUN, (run_id,))).rows

    async def failures(self, group_id: int, limit: int) -> Sequence[Row]:
        """The failed runs of a group, with the step and its last attempt."""
        return (await self._query(shared.FAILURES, (group_id, limit))).rows

    async def has_unhandled_events(self, group_id: int) -> bool:
        """Whether handlers of a plan are still to be called for events of the group."""
        return (await self._query(shared.UNHANDLED, (group_id,))).rows != []

    async def attempts(self, run_id: int) -> Sequence[Row]:
        return (await self._query(shared.ATTEMPTS, (run_id,))).rows

    # --- access to the database -----------------------------------------------------------------

    def _alone(self, statement: str, params: Sequence[Any]) -> Steps[QueryResult]:
        return (yield statement, params)

    async def _steps(self, steps: Callable[[], Steps[T]]) -> T:
        return await translate_errors(lambda: self._db.run_steps(steps))

    async def _query(self, statement: str, params: Sequence[Any]) -> QueryResult:
        return await translate_errors(lambda: self._db.execute_query(statement, params))

    async def _notify(self, channel: str) -> None:
        await translate_errors(lambda: self._db.notify(channel))


async def translate_errors(work: Callable[[], Awaitable[T]]) -> T:
    """The one place where errors of the database become errors of durable runs."""
    try:
        return await work()
    except TransactionScopeError:
        raise  # a mistake in the caller's code
    except DatabaseError as error:
        raise DurableError(
            f"the store of durable runs failed: {error.message}",
            details=error.details,
            hint=error.hint,
        ) from error


async def persist(write: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Repeat ``write`` until the store answers, however long it is out of reach.

    A write that the store refuses is retried for so many seconds, then its error is raised; that of
    a file that was deleted or replaced is raised at once. Whether
    the writer still has its lease is for the store to say: after an outage nobody may have taken it.
    """
    give_up = clock.monotonic() + seconds
    tries = 0
    while True:
        try:
            return await write()
        except DurableError as error:
            if is_file_lost(error) or (not is_outage(error) and clock.monotonic() >= give_up):
                raise
            tries += 1
        await anyio.sleep(_AGAIN.delay(tries))


def _standing(group: Row, counted: Row, now: float) -> Mapping[str, Any]:
    """What a group should look like, by its runs."""
    total, failed, cancelled = counted["total"], counted["failed"], counted["cancelled"]
    started = group["started_at"] if group["started_at"] is not None else counted["started_at"]
    right = {
        "total": total,
        "remaining": counted["remaining"],
        "failed": failed,
        "cancelled": cancelled,
        "started_at": started,
    }
    if counted["remaining"]:
        status = "pending" if started is None else "running"
        return right | {"status": status, "endings": group["endings"], "completed_at": None}
    status = "failed" if failed else "cancelled" if cancelled == total else "completed"
    if group["completed_at"] is not None:
        endings, at = group["endings"], group["completed_at"]
    else:
        endings, at = group["endings"] + 1, now
    return right | {"status": status, "endings": endings, "completed_at": at}


def _list_waiting(rows: Sequence[Row]) -> Sequence[Unserved]:
    """The handlers that are not done yet, of events as WAITING_EVENTS has them."""
    since: dict[tuple[str, str], float] = {}
    for row in rows:
        done = (row["done"] or "").split(",")
        for number, handler in enumerate(list_lifecycle_handlers(row["body"], row["kind"]), 1):
            if str(number) not in done:
                key, at = (row["kind"], handler), row["waits_since"]
                since[key] = min(since.get(key, at), at)
    return [
        Unserved(event=event, handler=handler, waits_since=at)
        for (event, handler), at in since.items()
    ]


def _child(run: NewRun, parent: Row) -> NewRun:
    """Take what it does not set itself from the run that made it."""
    return evolve(
        run,
        doc_id=run.doc_id if run.doc_id is not None else parent["doc_id"],
        batch_id=run.batch_id if run.batch_id is not None else parent["batch_id"],
        tenant=run.tenant if run.tenant is not None else parent["tenant"],
        priority=min(max(parent["priority"] + run.priority, MIN_PRIORITY), MAX_PRIORITY),
        # the end of the step is written once: so are they
        idempotency_key=None,
    )
