"""Jobs in the memory of the process: every promise of the contract but durability."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count
from typing import Any

from lexigram import clock
from lexigram.contracts.infra.tasks.types import (
    ClaimedJob,
    DependencyPolicy,
    EndKind,
    JobStatus,
    LeaseState,
)
from lexigram.leasing.subscriptions import Subscriptions, Waiter
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


class MemoryStore:
    """One event loop only. No method awaits between reading and writing: each is atomic."""

    is_durable = False
    joins = False

    def __init__(self, *, poll: float = 1.0) -> None:
        self._poll = poll
        self._numbers = count(1)
        # In the order of arrival, so the last ones are the latest.
        self._rows: dict[str, dict[str, Any]] = {}
        self._by_seq: dict[int, dict[str, Any]] = {}
        self._unique: dict[str, str] = {}
        self._requests: dict[str, str] = {}
        self._dependents: dict[str, list[str]] = {}
        # (-priority, available_at, seq) per queue; entries of rows that moved on are skipped.
        self._ready: dict[str, list[tuple[int, float, int]]] = {}
        # Moment and seq.
        self._delayed: list[tuple[float, int]] = []
        self._running: dict[int, dict[str, Any]] = {}
        self._turn = count()
        self._news = Subscriptions()

    # --- in -------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Admission]:
        return [self._insert(new) for new in jobs]

    def _insert(self, new: NewJob) -> Admission:
        job = new.job
        if job.id in self._rows:
            return Admission(kind="known_id", job_id=job.id)
        if job.idempotency_key is not None and job.idempotency_key in self._requests:
            return Admission(kind="same_request", job_id=self._requests[job.idempotency_key])
        if job.unique_key is not None and job.unique_key in self._unique:
            return Admission(kind="not_unique", job_id=self._unique[job.unique_key])
        for needed in job.depends_on:
            if needed not in self._rows:
                return Admission(kind="unknown_dependency", job_id=needed)
        row = self._new_row(new)
        self._rows[job.id] = self._by_seq[row["seq"]] = row
        if job.idempotency_key is not None:
            self._requests[job.idempotency_key] = job.id
        self._wait_for(row, job.depends_on)
        self._become(row, self._first_state(row))
        return Admission(kind="new", job_id=job.id)

    def _new_row(self, new: NewJob) -> dict[str, Any]:
        job, now = new.job, clock.timestamp()
        scheduled = None if job.scheduled_at is None else job.scheduled_at.timestamp()
        return {
            "seq": next(self._numbers),
            "id": job.id,
            "name": job.name,
            "queue": job.queue,
            "priority": job.priority,
            "payload": new.payload,
            "max_retries": job.max_retries,
            "timeout": job.timeout,
            "scheduled_at": scheduled if not new.delay else now + new.delay,
            "available_at": max(now, scheduled or now) + new.delay,
            "unique_key": job.unique_key,
            "idempotency_key": job.idempotency_key,
            "depends_on": "\n".join(job.depends_on),
            "on_dependency_failure": job.on_dependency_failure.value,
            "max_deliveries": job.max_deliveries,
            "result_ttl": job.result_ttl,
            "correlation_id": job.correlation_id,
            "causation_id": job.causation_id,
            "state": State.WAITING,
            "created_at": now,
            "started_at": None,
            "completed_at": None,
            "retry_count": 0,
            "lost_count": 0,
            "error": "",
            "reason": "",
            "notes": "",
            "cancel_requested": False,
            "waits": 0,
            "lease": None,
            "lease_until": None,
            "fence": 0,
            "result": None,
            "result_until": None,
        }

    def _wait_for(self, row: dict[str, Any], needed: Sequence[str]) -> None:
        for other in needed:
            state = self._rows[other]["state"]
            if state in UNFINISHED:
                row["waits"] += 1
                self._dependents.setdefault(other, []).append(row["id"])
            elif state is not State.COMPLETED and _cancels(row):
                row["reason"] = "dependency"

    def _first_state(self, row: dict[str, Any]) -> State:
        if row["reason"]:
            return State.CANCELLED
        return State.WAITING if row["waits"] else self._when_due(row)

    def _when_due(self, row: dict[str, Any]) -> State:
        return State.DELAYED if row["available_at"] > clock.timestamp() else State.READY

    # --- out ------------------------------------------------------------------------------------

    async def claim(
        self, holder: str, limit: int, queues: Sequence[str], lease: float
    ) -> Sequence[ClaimedJob]:
        claimed: list[ClaimedJob] = []
        while len(claimed) < limit and (row := self._next(queues)) is not None:
            row["lease"], row["fence"] = holder, row["fence"] + 1
            row["lease_until"] = clock.timestamp() + lease
            row["started_at"] = clock.timestamp()
            self._become(row, State.RUNNING)
            claimed.append(claimed_from(row))
        return claimed

    def _next(self, queues: Sequence[str]) -> dict[str, Any] | None:
        """Of all queues the first by order; of named queues each one's first in turn."""
        if queues:
            turn = next(self._turn)
            names = [queues[(turn + i) % len(queues)] for i in range(len(queues))]
            heads = (self._head(name) for name in names)
            best = next((head for head in heads if head is not None), None)
        else:
            found = [head for name in list(self._ready) if (head := self._head(name))]
            best = min(found, default=None)
        return None if best is None else self._by_seq[best[2]]

    def _head(self, queue: str) -> tuple[int, float, int] | None:
        heap = self._ready.get(queue, [])
        while heap:
            row = self._by_seq.get(heap[0][2])
            if row is not None and row["state"] is State.READY and heap[0] == _order(row):
                return heap[0]
            heappop(heap)
        self._ready.pop(queue, None)
        return None

    async def extend(self, claims: Sequence[ClaimedJob], lease: float) -> Sequence[LeaseState]:
        return [self._extend(claim, lease) for claim in claims]

    def _extend(self, claim: ClaimedJob, lease: float) -> LeaseState:
        row = self._find_held(claim)
        if row is None:
            return LeaseState.LOST
        row["lease_until"] = clock.timestamp() + lease
        return LeaseState.CANCEL_REQUESTED if row["cancel_requested"] else LeaseState.KEPT

    def _find_held(self, claim: ClaimedJob) -> dict[str, Any] | None:
        row = self._running.get(claim.position)
        if row is None or row["lease"] != claim.holder or row["fence"] != claim.fence:
            return None
        return row

    async def finish(self, ends: Sequence[End]) -> Finished:
        others: list[Ended] = []
        statuses = [self._finish(end, others) for end in ends]
        return Finished(statuses=statuses, others=others)

    def _finish(self, end: End, others: list[Ended]) -> JobStatus | None:
        row = self._find_held(end.claim)
        if row is None:
            return None
        state, now = state_after(end.kind, end.delay), clock.timestamp()
        if end.kind is EndKind.RETRY:
            row["retry_count"] += 1
        if end.kind is not EndKind.RELEASED:
            row["error"], row["reason"] = end.error, end.reason
        if state in QUEUED:
            row["available_at"] = now + end.delay if end.kind is EndKind.RETRY else now
            if row["cancel_requested"]:
                state, row["reason"] = State.CANCELLED, "asked"
        if state is State.COMPLETED and end.result is not None:
            row["result"], row["result_until"] = end.result, now + end.ttl
        self._become(row, state)
        self._let_dependents_go(row, others)
        return status_of(state, row["retry_count"])

    async def tend(self) -> Tended:
        now, others = clock.timestamp(), list[Ended]()
        promoted = self._promote(now) + self._reap(now, others)
        due = None if (row := self._next_delayed()) is None else row["available_at"] - now
        return Tended(promoted=promoted, others=others, next_due=due)

    def _promote(self, now: float) -> int:
        promoted = 0
        while (row := self._next_delayed()) is not None and row["available_at"] <= now:
            heappop(self._delayed)
            self._become(row, State.READY)
            promoted += 1
        return promoted

    def _next_delayed(self) -> dict[str, Any] | None:
        """The row whose time comes next; entries of rows that moved on are dropped."""
        while self._delayed:
            at, seq = self._delayed[0]
            row = self._by_seq.get(seq)
            if row is not None and row["state"] is State.DELAYED and row["available_at"] == at:
                return row
            heappop(self._delayed)
        return None

    def _reap(self, now: float, others: list[Ended]) -> int:
        reaped = [row for row in self._running.values() if row["lease_until"] <= now]
        for row in reaped:
            row["lost_count"] += 1
            state = State.READY
            if row["cancel_requested"]:
                state, row["reason"] = State.CANCELLED, "asked"
            elif row["lost_count"] >= row["max_deliveries"]:
                state, row["reason"] = State.FAILED, "poison"
                row["error"] = f"its workers died or lost it {row['lost_count']} times"
            else:
                row["available_at"] = now
            self._become(row, state)
            if state is not State.READY:
                others.append(ended_from(row))
            self._let_dependents_go(row, others)
        return len(reaped)

    # --- by hand --------------------------------------------------------------------------------

    async def cancel(self, job_id: str) -> Cancelled:
        row = self._rows.get(job_id)
        if row is None or row["state"] not in UNFINISHED:
            return Cancelled(found=False)
        row["cancel_requested"] = True
        if row["state"] is State.RUNNING:
            self._news.tell("cancel", "")
            return Cancelled(found=True, running=True)
        row["reason"] = "asked"
        self._become(row, State.CANCELLED)
        others = [ended_from(row)]
        self._let_dependents_go(row, others)
        return Cancelled(found=True, others=others)

    async def revive(self, job_id: str, states: Sequence[State]) -> bool:
        row = self._rows.get(job_id)
        if row is None or row["state"] not in states or not row["name"]:
            return False
        if row["unique_key"] is not None and row["unique_key"] in self._unique:
            return False
        row.update(retry_count=0, lost_count=0, error="", reason="", notes="")
        row.update(cancel_requested=False, completed_at=None, available_at=clock.timestamp())
        self._become(row, State.READY)
        return True

    async def bury(self, job: NewJob, reason: str, error: str, notes: str) -> None:
        row = self._rows.get(job.job.id)
        if row is None or row["state"] is State.FAILED:
            seq = None if row is None else row["seq"]
            row = self._new_row(job)
            row["seq"] = seq or row["seq"]
            # A letter claims no keys: they are taken when it is retried.
            self._rows[job.job.id] = self._by_seq[row["seq"]] = row
        row.update(reason=reason, error=error, notes=notes)
        self._become(row, State.FAILED)
        self._let_dependents_go(row, [])

    async def get(self, job_id: str) -> Row | None:
        row = self._rows.get(job_id)
        return None if row is None else _readable(row)

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
        found = self._matching(queue, states, retried, name)
        by_end = tuple(states) == (State.FAILED,)
        found.sort(key=lambda row: (by_end and row["completed_at"], row["seq"]), reverse=True)
        return [_readable(row) for row in found[offset : offset + limit]]

    async def count(self, queue: str | None, states: Sequence[State], retried: bool | None) -> int:
        return len(self._matching(queue, states, retried, None))

    def _matching(
        self,
        queue: str | None,
        states: Sequence[State],
        retried: bool | None,
        name: str | None,
    ) -> list[dict[str, Any]]:
        return [
            row
            for row in self._rows.values()
            if row["state"] in states
            and queue in (None, row["queue"])
            and name in (None, row["name"])
            and retried in (None, row["retry_count"] > 0)
        ]

    async def delete(self, states: Sequence[State], job_id: str | None = None) -> int:
        found = self._matching(None, states, None, None)
        gone = [row for row in found if job_id in (None, row["id"])]
        others: list[Ended] = []
        for row in gone:
            if row["state"] in UNFINISHED:
                # Who waits for it would wait for ever.
                row["reason"] = "asked"
                self._become(row, State.CANCELLED)
                self._let_dependents_go(row, others)
            self._forget(row)
        return len(gone)

    async def purge(self, older_than: float) -> int:
        limit = clock.timestamp() - older_than
        old = [
            row
            for row in self._rows.values()
            if row["state"] in (State.COMPLETED, State.CANCELLED) and row["completed_at"] <= limit
        ]
        for row in old:
            self._forget(row)
        return len(old)

    # --- news -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def listening(self, to: Topic) -> AsyncIterator[Waiter]:
        with self._news.open(to) as subscription:
            yield Waiter(subscription, self._poll)

    # --- the one place where a row moves --------------------------------------------------------

    def _become(self, row: dict[str, Any], state: State) -> None:
        row["state"] = state
        if state is State.RUNNING:
            self._running[row["seq"]] = row
        else:
            self._running.pop(row["seq"], None)
            row["lease"] = row["lease_until"] = None
        key = row["unique_key"]
        if key is not None:
            if state in UNFINISHED:
                self._unique[key] = row["id"]
            elif self._unique.get(key) == row["id"]:
                del self._unique[key]
        if state is State.READY:
            heappush(self._ready.setdefault(row["queue"], []), _order(row))
            self._news.tell("work", "")
        elif state is State.DELAYED:
            heappush(self._delayed, (row["available_at"], row["seq"]))
            self._news.tell("work", "")  # there is a new next moment to look
        elif state not in UNFINISHED:
            row["completed_at"] = clock.timestamp()
            self._news.tell("done", "")

    def _let_dependents_go(self, row: dict[str, Any], others: list[Ended]) -> None:
        """Those who waited for a job that ended, and those who waited for these, and so on."""
        ended = [row]
        while ended:
            done = ended.pop()
            if done["state"] in UNFINISHED:
                continue
            for name in self._dependents.pop(done["id"], ()):
                waiting = self._rows.get(name)
                if waiting is None or waiting["state"] is not State.WAITING:
                    continue
                if done["state"] is not State.COMPLETED and _cancels(waiting):
                    waiting["reason"] = "dependency"
                    self._become(waiting, State.CANCELLED)
                    others.append(ended_from(waiting))
                    ended.append(waiting)
                    continue
                waiting["waits"] -= 1
                if not waiting["waits"]:
                    self._become(waiting, self._when_due(waiting))

    def _forget(self, row: dict[str, Any]) -> None:
        del self._rows[row["id"]], self._by_seq[row["seq"]]
        if self._requests.get(row["idempotency_key"] or "") == row["id"]:
            del self._requests[row["idempotency_key"]]


def _order(row: dict[str, Any]) -> tuple[int, float, int]:
    return (-row["priority"], row["available_at"], row["seq"])


def _cancels(row: dict[str, Any]) -> bool:
    return bool(row["on_dependency_failure"] == DependencyPolicy.CANCEL.value)


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    """A copy; a result whose time is over is gone."""
    until = row["result_until"]
    over = until is not None and until <= clock.timestamp()
    return {**row, "result": None} if over else dict(row)
