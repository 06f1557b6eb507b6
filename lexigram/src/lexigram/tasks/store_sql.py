"""Jobs in SQLite or PostgreSQL, shared by every process that uses the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import Any, TypeVar

import orjson

from lexigram import clock
from lexigram.contracts.data.sql.database import (
    DatabaseError,
    QueryResult,
    UniqueViolationError,
)
from lexigram.contracts.infra.tasks.errors import TaskQueueError
from lexigram.contracts.infra.tasks.types import (
    ClaimedJob,
    DependencyPolicy,
    EndKind,
    JobStatus,
    LeaseState,
)
from lexigram.leasing.subscriptions import Waiter
from lexigram.sql.database import Database
from lexigram.sql.errors import TransactionScopeError
from lexigram.sql.leasing.wakeup import WakeUp
from lexigram.sql.steps import Steps
from lexigram.tasks import statements as sql
from lexigram.tasks.intake import NewJob
from lexigram.tasks.store import (
    QUEUED,
    UNFINISHED,
    Admission,
    Cancelled,
    End,
    Ended,
    Finished,
    Row,
    State,
    Tended,
    Topic,
    claimed_from,
    ended_from,
    state_after,
    status_of,
)

T = TypeVar("T")

CHANNELS: Mapping[Topic, str] = {
    "work": "lexigram_jobs_work",
    "cancel": "lexigram_jobs_cancel",
    "done": "lexigram_jobs_done",
}
_TRIES = 3  # a key that was taken may be free when we look who has it
_TELL = "SELECT pg_notify(?, '')"


class SqlStore:
    """The statements of ``lexigram.tasks.statements``, and what happens between them.

    ``insert`` joins a transaction the calling task has open on the database; PostgreSQL then
    wakes workers at its commit, and on SQLite their claims wait for its end.
    """

    is_durable = True

    def __init__(self, database: Database, *, poll: float = 1.0) -> None:
        self._database = database
        self._is_postgres = database.dialect == "postgresql"
        self._poll = poll
        self._turn = count()
        insert = sql.INSERT_POSTGRES if self._is_postgres else sql.INSERT_SQLITE
        finish = sql.FINISH_POSTGRES if self._is_postgres else sql.FINISH_SQLITE
        self._insert_sql = made_for(database, insert)
        self._finish_sql = made_for(database, finish)

    @property
    def joins(self) -> bool:
        return self._database.in_transaction

    # --- in -------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Admission]:
        if any(new.job.depends_on for new in jobs):
            admissions: Sequence[Admission] = await self._steps(lambda: self._insert_in_order(jobs))
        else:
            admissions = await self._insert_at_once(jobs)
        await self._tell_here("work")
        return admissions

    async def _insert_at_once(self, jobs: Sequence[NewJob]) -> Sequence[Admission]:
        """One statement; more only when a key was taken."""
        params = (self._now(), self._rows(jobs))
        found = await translated(lambda: self._database.execute(self._insert_sql, params))
        new = {row["id"] for row in found.rows}
        if len(new) == len(jobs):
            return [Admission(kind="new", job_id=item.job.id) for item in jobs]
        return await self._steps(lambda: self._explain(jobs, new))

    def _explain(self, jobs: Sequence[NewJob], new: set[str]) -> Steps[list[Admission]]:
        """Who was in the way of those that are not among the new ones."""
        admissions: list[Admission] = []
        for item in jobs:
            # The first of two with one id is the new one.
            if item.job.id in new:
                new.discard(item.job.id)
                admissions.append(Admission(kind="new", job_id=item.job.id))
            else:
                admissions.append((yield from self._insert_one(item)))
        return admissions

    def _insert_in_order(self, jobs: Sequence[NewJob]) -> Steps[list[Admission]]:
        return (yield from self._explain(jobs, set()))

    def _insert_one(self, new: NewJob) -> Steps[Admission]:
        job = new.job
        for _ in range(_TRIES):
            found = yield made_for(self._database, sql.CONFLICTS), self._keys(new)
            conflict = _conflict(new, found)
            if conflict is not None:
                return conflict
            needed = yield from self._find_needed(new)
            missing = [name for name in job.depends_on if name not in needed]
            if missing:
                return Admission(kind="unknown_dependency", job_id=missing[0])
            state, waits = _first_state(new, needed)
            reason = "dependency" if state is State.CANCELLED else ""
            row = self._rows([new], state=state, waits=len(waits), reason=reason)
            made = yield self._insert_sql, (self._now(), row)
            if made.rows:
                for name in waits:
                    yield sql.ADD_EDGE, (name, job.id)
                if waits:
                    yield made_for(self._database, sql.AWAIT), (self._list(waits),)
                return Admission(kind="new", job_id=job.id)
        raise TaskQueueError(
            f"job {job.id!r} was neither accepted nor is anything in its way",
            details={"job_id": job.id},
            hint="jobs with its key come and go faster than it can be enqueued; try again",
        )

    def _find_needed(self, new: NewJob) -> Steps[dict[str, State]]:
        if not new.job.depends_on:
            return {}
        found = yield made_for(self._database, sql.NEEDED), (self._list(new.job.depends_on),)
        return {row["id"]: State(row["state"]) for row in found.rows}

    def _keys(self, new: NewJob) -> tuple[Any, ...]:
        job = new.job
        return (
            self._list([job.id]),
            self._list([] if job.idempotency_key is None else [job.idempotency_key]),
            self._list([] if job.unique_key is None else [job.unique_key]),
        )

    def _rows(
        self,
        jobs: Sequence[NewJob],
        *,
        state: State | None = None,
        waits: int = 0,
        reason: str = "",
        error: str = "",
        notes: str = "",
    ) -> str:
        rows = [
            {
                "n": number,
                "id": (job := new.job).id,
                "name": job.name,
                "queue": job.queue,
                "priority": job.priority,
                "payload": new.payload,
                "max_retries": job.max_retries,
                "max_deliveries": job.max_deliveries,
                "timeout": job.timeout,
                "result_ttl": job.result_ttl,
                "unique_key": job.unique_key,
                "idempotency_key": job.idempotency_key,
                "depends_on": "\n".join(job.depends_on),
                "on_dependency_failure": job.on_dependency_failure.value,
                "correlation_id": job.correlation_id,
                "causation_id": job.causation_id,
                "state": state,
                "scheduled_at": job.scheduled_at and job.scheduled_at.timestamp(),
                "delay": new.delay,
                "reason": reason,
                "waits": waits,
                "error": error,
                "notes": notes,
            }
            for number, new in enumerate(jobs)
        ]
        return orjson.dumps(rows).decode()

    # --- out ------------------------------------------------------------------------------------

    async def claim(
        self, holder: str, limit: int, queues: Sequence[str], lease: float
    ) -> Sequence[ClaimedJob]:
        claimed: list[ClaimedJob] = []
        turn = next(self._turn)
        for number in range(len(queues) or 1):
            where = (queues[(turn + number) % len(queues)],) if queues else ()
            statement = made_for(self._database, sql.CLAIM if queues else sql.CLAIM_ANY)
            left = limit - len(claimed)
            params = (self._now(), holder, lease, *where, left)
            found = await translated(
                lambda statement=statement, params=params: self._database.execute(  # type: ignore[misc]
                    statement, params
                )
            )
            rows = sorted(found.rows, key=_order)  # RETURNING has no order
            claimed += [claimed_from(row) for row in rows]
            if len(claimed) >= limit:
                break
        return claimed

    async def extend(self, claims: Sequence[ClaimedJob], lease: float) -> Sequence[LeaseState]:
        kept: dict[tuple[int, int], LeaseState] = {}
        by_holder: dict[str, list[int]] = {}
        for claim in claims:
            by_holder.setdefault(claim.holder, []).append(claim.position)
        for holder, positions in by_holder.items():
            params = (self._now(), lease, self._list(positions), holder)
            found = await translated(
                lambda params=params: self._database.execute(
                    made_for(self._database, sql.EXTEND), params
                )  # type: ignore[misc]
            )
            for row in found.rows:
                asked = bool(row["cancel_requested"])
                state = LeaseState.CANCEL_REQUESTED if asked else LeaseState.KEPT
                kept[row["seq"], row["fence"]] = state
        return [kept.get((claim.position, claim.fence), LeaseState.LOST) for claim in claims]

    async def finish(self, ends: Sequence[End]) -> Finished:
        done: dict[int, Mapping[str, Any]] = {}
        others: list[Ended] = []
        left = ends
        if self._is_postgres:
            found = await translated(
                lambda: self._database.execute(self._finish_sql, (None, _render_ends(ends), False))
            )
            done = {row["seq"]: row for row in found.rows}
            left = [end for end in ends if end.claim.position not in done]
        if left:
            rows, others = await self._steps(lambda: self._finish_awaited(left))
            done |= {row["seq"]: row for row in rows}
        again = any(State(row["state"]) in QUEUED for row in done.values())
        if again or others:
            await self._tell("work")
        await self._tell_here("done")
        statuses = [_status(done.get(end.claim.position)) for end in ends]
        return Finished(statuses=statuses, others=others)

    def _finish_awaited(
        self, ends: Sequence[End]
    ) -> Steps[tuple[list[dict[str, Any]], list[Ended]]]:
        found = yield self._finish_sql, (self._now(), _render_ends(ends), True)
        others = yield from self._let_go(found.rows)
        return found.rows, others

    def _let_go(self, ended: Sequence[Row]) -> Steps[list[Ended]]:
        """Those who waited for jobs that ended, and those who waited for these, and so on."""
        others: list[Ended] = []
        left = [row for row in ended if row["is_awaited"]]
        while left:
            row = left.pop()
            state = State(row["state"])
            if state in UNFINISHED:
                continue
            completed = state is State.COMPLETED
            if not completed:
                found = yield made_for(self._database, sql.CANCEL_WAITING), (self._now(), row["id"])
                others += [ended_from(item) for item in found.rows]
                left += [item for item in found.rows if item["is_awaited"]]
            yield made_for(self._database, sql.LET_GO), (self._now(), row["id"], completed)
            yield sql.CUT_EDGES, (row["id"],)
            if self._is_postgres:
                yield _TELL, (CHANNELS["work"],)
        return others

    async def tend(self) -> Tended:
        tended = await self._steps(self._tend)
        if tended.promoted:
            await self._tell_here("work")
        if tended.others:
            await self._tell_here("done")
        return tended

    def _tend(self) -> Steps[Tended]:
        promoted = yield made_for(self._database, sql.PROMOTE), (self._now(),)
        reaped = yield made_for(self._database, sql.REAP), (self._now(),)
        ended = [row for row in reaped.rows if State(row["state"]) is not State.READY]
        others = yield from self._let_go(ended)
        due = yield made_for(self._database, sql.NEXT_DUE), (self._now(),)
        work = promoted.row_count + reaped.row_count
        if self._is_postgres and work:
            yield _TELL, (CHANNELS["work"],)
            if ended:
                yield _TELL, (CHANNELS["done"],)
        return Tended(
            promoted=work,
            others=[*map(ended_from, ended), *others],
            next_due=due.rows[0]["seconds"],
        )

    # --- by hand --------------------------------------------------------------------------------

    async def cancel(self, job_id: str) -> Cancelled:
        answer = await self._steps(lambda: self._cancel(job_id))
        await self._tell("cancel" if answer.running else "done")
        return answer

    def _cancel(self, job_id: str) -> Steps[Cancelled]:
        row = (yield made_for(self._database, sql.CANCEL), (self._now(), job_id)).first()
        if row is None:
            return Cancelled(found=False)
        if row["state"] == State.RUNNING:
            return Cancelled(found=True, running=True)
        others = yield from self._let_go([row])
        return Cancelled(found=True, others=[ended_from(row), *others])

    async def revive(self, job_id: str, states: Sequence[State]) -> bool:
        params = (self._now(), job_id, self._list(states))
        statement = made_for(self._database, sql.REVIVE)
        try:
            found = await translated(lambda: self._database.execute(statement, params))
        except TaskQueueError as error:
            if isinstance(error.cause, UniqueViolationError):
                return False  # another job took the unique key at this very moment
            raise
        if found.rows:
            await self._tell("work")
        return bool(found.rows)

    async def bury(self, job: NewJob, reason: str, error: str, notes: str) -> None:
        await self._steps(lambda: self._bury(job, reason, error, notes))
        await self._tell("done")

    def _bury(self, new: NewJob, reason: str, error: str, notes: str) -> Steps[None]:
        job_id = new.job.id
        params = (self._now(), reason, error, notes, job_id)
        found = yield made_for(self._database, sql.BURY_KNOWN), params
        if found.rows:
            yield from self._let_go(found.rows)
            return
        yield made_for(self._database, sql.FORGET), (job_id, self._list([State.FAILED]))
        row = self._rows([new], state=State.FAILED, reason=reason, error=error, notes=notes)
        yield self._insert_sql, (self._now(), row)

    async def get(self, job_id: str) -> Row | None:
        return (await self._query(made_for(self._database, sql.GET), (self._now(), job_id))).first()

    async def find(
        self,
        *,
        queue: str | None,
        states: Sequence[State],
        retried: bool | None,
        name: str | None,
        limit: int,
        offset: int,
    ) -> Sequence[Row]:
        such = (queue, queue, name, name, retried, retried, limit, offset)
        if tuple(states) == (State.FAILED,):
            found = await self._query(made_for(self._database, sql.FIND_DEAD), (self._now(), *such))
        else:
            params = (self._now(), self._list(states), *such)
            found = await self._query(made_for(self._database, sql.FIND), params)
        return found.rows

    async def count(self, queue: str | None, states: Sequence[State], retried: bool | None) -> int:
        params = (self._list(states), queue, queue, None, None, retried, retried)
        found = await self._query(made_for(self._database, sql.COUNT), params)
        return int(found.rows[0]["found"])

    async def delete(self, states: Sequence[State], job_id: str | None = None) -> int:
        return await self._steps(lambda: self._delete(states, job_id))

    def _delete(self, states: Sequence[State], job_id: str | None) -> Steps[int]:
        if job_id is not None:
            # Who waits for it would wait for ever.
            row = (yield made_for(self._database, sql.GET), (self._now(), job_id)).first()
            if row is None or row["state"] not in states:
                return 0
            if State(row["state"]) in QUEUED:
                yield from self._cancel(job_id)
            gone = yield made_for(self._database, sql.FORGET), (job_id, self._list([*states]))
            return gone.row_count
        if tuple(states) == (State.FAILED,):
            return (yield sql.FORGET_DEAD, ()).row_count
        gone = yield sql.FORGET_QUEUED, ()
        yield sql.CUT_LOOSE_EDGES, ()
        return gone.row_count

    async def purge(self, older_than: float) -> int:
        gone, last = 0, 1000
        statement = made_for(self._database, sql.PURGE)
        while last >= 1000:
            params = (self._now(), older_than)
            found = await translated(
                lambda params=params: self._database.execute(statement, params)  # type: ignore[misc]
            )
            last = found.row_count
            gone += last
        return gone

    # --- news -----------------------------------------------------------------------------------

    def listening(self, to: Topic) -> AbstractAsyncContextManager[Waiter]:
        return WakeUp(self._database, CHANNELS[to], self._poll).waiting()

    async def _tell(self, who: Topic) -> None:
        await translated(lambda: self._database.notify(CHANNELS[who]))

    async def _tell_here(self, who: Topic) -> None:
        """SQLite only: on PostgreSQL the statement itself notifies."""
        if not self._is_postgres:
            await self._tell(who)

    # --- the door to the database ---------------------------------------------------------------

    async def _steps(self, steps: Callable[[], Steps[T]]) -> T:
        return await translated(lambda: self._database.run_steps(steps))

    async def _query(self, statement: str, params: Sequence[Any]) -> QueryResult:
        return await translated(lambda: self._database.execute_query(statement, params))

    def _now(self) -> float | None:
        return now_for(self._database)

    def _list(self, values: Sequence[Any]) -> Any:
        return list(values) if self._is_postgres else orjson.dumps(list(values)).decode()


def made_for(database: Database, text: str) -> str:
    """A statement of ``lexigram.tasks.statements`` for this database."""
    return (sql.POSTGRES if database.dialect == "postgresql" else sql.SQLITE).made(text)


def now_for(database: Database) -> float | None:
    """First parameter of most statements: the time on SQLite, None on PostgreSQL."""
    return None if database.dialect == "postgresql" else clock.timestamp()


async def translated(work: Callable[[], Awaitable[T]]) -> T:
    """The one place where errors of the database become errors of the queue."""
    try:
        return await work()
    except TransactionScopeError:
        raise  # a mistake in the caller's code, not a failure of the queue
    except DatabaseError as error:
        raise TaskQueueError(
            f"the job store failed: {error.message}", details=error.details, hint=error.hint
        ) from error


def _conflict(new: NewJob, found: QueryResult) -> Admission | None:
    job = new.job
    for row in found.rows:
        if row["id"] == job.id:
            return Admission(kind="known_id", job_id=job.id)
    for row in found.rows:
        if job.idempotency_key is not None and row["idempotency_key"] == job.idempotency_key:
            return Admission(kind="same_request", job_id=row["id"])
    for row in found.rows:
        if job.unique_key is not None and row["unique_key"] == job.unique_key:
            return Admission(kind="not_unique", job_id=row["id"])
    return None


def _first_state(new: NewJob, needed: Mapping[str, State]) -> tuple[State | None, list[str]]:
    """The state a job begins in, None for "by its time"; and the jobs it waits for."""
    waits = [name for name, state in needed.items() if state in UNFINISHED]
    broken = any(state in (State.FAILED, State.CANCELLED) for state in needed.values())
    if broken and new.job.on_dependency_failure is DependencyPolicy.CANCEL:
        return State.CANCELLED, []
    return (State.WAITING, waits) if waits else (None, [])


def _render_ends(ends: Sequence[End]) -> str:
    rows = [
        {
            "position": end.claim.position,
            "holder": end.claim.holder,
            "claim": end.claim.fence,
            "next": state_after(end.kind, end.delay),
            "failed": int(end.kind is EndKind.RETRY),
            "settled": end.kind is not EndKind.RELEASED,
            "delay": end.delay,
            "value": end.result,
            "ttl": end.ttl,
            "message": end.error,
            "why": end.reason,
        }
        for end in ends
    ]
    return orjson.dumps(rows).decode()


def _status(row: Row | None) -> JobStatus | None:
    return None if row is None else status_of(row["state"], row["retry_count"])


def _order(row: Row) -> tuple[int, float, int]:
    return (-row["priority"], row["available_at"], row["seq"])
