"""Durable runs in PostgreSQL: a claim is one statement, a finish is one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from lexigram.contracts.data.sql.database import QueryResult
from lexigram.observability import get_logger
from lexigram.sql.database import Database
from lexigram.sql.leasing import lease_now
from lexigram.sql.steps import Steps
from lexigram.workflow.durable.errors import DurableError
from lexigram.workflow.durable.plan import LifeCycleEvent, NewRun, RunPlan
from lexigram.workflow.durable.store import _postgres_statements as sql
from lexigram.workflow.durable.store import statements as shared
from lexigram.workflow.durable.store.base import DurableStore, translate_errors
from lexigram.workflow.durable.store.records import (
    CHANNEL,
    Audience,
    Beat,
    Claimed,
    End,
    Ended,
    GroupEvent,
    Reaped,
    Row,
    State,
    Submitted,
    Tended,
    Terms,
    claims_from,
    ends_json,
    event_from,
    lacks_text,
    make_ended,
    runs_json,
)

logger = get_logger(__name__)

_PLANS = 1_000  # plans whose numbers are kept in memory


class PostgresDurableStore(DurableStore):
    """Its clock is the server's."""

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

    def __init__(self, database: Database, terms: Terms) -> None:
        super().__init__(database, terms)
        # digests; what stands here may be from a transaction that was rolled back
        self._plans: dict[str, int] = {}

    async def submit(
        self, plan: RunPlan, runs: Sequence[NewRun], name: str | None, key: str | None
    ) -> Submitted:
        """One transaction; of one statement when the plan is known and nothing has a key."""
        if key is None and all(run.idempotency_key is None for run in runs):
            answer = await self._submit_known(plan, runs, name)
            if answer is not None:
                return answer
        return await super().submit(plan, runs, name, key)

    async def _submit_known(
        self, plan: RunPlan, runs: Sequence[NewRun], name: str | None
    ) -> Submitted | None:
        """None when the plan is not stored, as far as is known here."""
        digest = plan.digest
        plan_id = self._plans.get(digest)
        if plan_id is None:
            return None
        batches = {run.batch_id for run in runs}
        batch_id = batches.pop() if len(batches) == 1 else None
        group = (name, plan.workflow_id, plan.param_id, batch_id, plan.events, len(runs), plan_id)
        terms = (len(plan.steps), self._terms.ageing, self._terms.tenant_gap)
        params = (*group, *terms, runs_json(runs))
        found = await translate_errors(
            lambda: self._db.run(lambda connection: connection.execute(sql.SUBMIT, params))
        )
        if not found.rows:
            self._plans.pop(digest, None)
            return None
        return Submitted(group_id=found.rows[0]["group_id"], runs=[row["id"] for row in found.rows])

    def _plan_id(self, plan: RunPlan, now: float) -> Steps[int]:
        plan_id = yield from super()._plan_id(plan, now)
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        self._plans[plan.digest] = plan_id
        return plan_id

    async def _claim(
        self, worker_id: str, lease: str, kinds: Sequence[int], batch: int | None, limit: int
    ) -> Claimed:
        """One statement; one more for each further kind whose turn it is."""
        left = list(kinds)
        rows = await self._claim_once(worker_id, lease, left, batch, limit)
        claims = claims_from(rows)
        lost_races = rows[0]["lost_races"]
        while rows[0]["others"] and len(claims) < limit:
            if not claims_from(rows):  # another claim has just taken the first of this kind
                left.remove(rows[0]["line"])
            try:
                rows = await self._claim_once(worker_id, lease, left, batch, limit - len(claims))
            except (
                DurableError
            ) as error:  # what was claimed is run; the next claim reports the error
                logger.warning("cannot claim more", worker=worker_id, error=str(error))
                break
            claims += claims_from(rows)
            lost_races += rows[0]["lost_races"]
        return Claimed(claims=claims, lost_races=lost_races, kinds=rows[0]["kinds"])

    async def _claim_once(
        self, worker_id: str, lease: str, kinds: Sequence[int], batch: int | None, limit: int
    ) -> Sequence[Row]:
        if len(kinds) == 1:
            statement = sql.CLAIM_KIND if batch is None else sql.CLAIM_KIND_OF_BATCH
        else:
            statement = sql.CLAIM_KINDS if batch is None else sql.CLAIM_KINDS_OF_BATCH
        which: Any = kinds[0] if len(kinds) == 1 else list(kinds)
        params = (worker_id, lease, self._terms.lease, batch, which, limit)
        return (await self._execute(statement, params)).rows

    async def finish(self, ends: Sequence[End]) -> Sequence[Ended | None]:
        if any(end.spawns for end in ends):
            return [await self._finish_alone(end) for end in ends]
        statement = sql.FINISH_PLAIN if all(end.is_plain for end in ends) else sql.FINISH
        found = await self._execute(statement, self._finish_params(ends))
        if found.rows and found.rows[0]["freed"]:
            await self._execute(sql.FORGET_FREED, (found.rows[0]["freed"],))
        done = {row["id"]: row for row in found.rows}
        return [make_ended(done[end.run_id]) if end.run_id in done else None for end in ends]

    def _finish_params(self, ends: Sequence[End]) -> Sequence[Any]:
        return self._terms.lease, self._terms.ageing, ends_json(ends)

    def _write_end(self, end: End, now: float) -> Steps[Row | None]:
        return (yield sql.FINISH, self._finish_params([end])).first()

    async def heartbeat(
        self,
        worker_id: str,
        held: Sequence[tuple[int, str]] = (),
        lacks: Sequence[int] = (),
        lacks_handlers: Sequence[str] = (),
    ) -> Sequence[Beat]:
        ids, leases = [run for run, _ in held], [lease for _, lease in held]
        lacking = lacks_text(lacks, lacks_handlers)
        params = (worker_id, self._terms.lease, lacking, ids, leases)
        found = await self._execute(sql.HEARTBEAT, params)
        return [Beat(**row) for row in found.rows]

    async def reap(self, own: Sequence[str], held: Sequence[str] | None = None) -> Reaped:
        leases = None if held is None else list(held)
        terms = (self._terms.max_lost, self._terms.ageing, self._terms.lease)
        params = (list(own), leases, *terms)
        rows = (await self._execute(sql.REAP, params)).rows
        return Reaped(
            workers=sorted({row["worker_id"] for row in rows}),
            steps=sorted(row["step_id"] for row in rows if row["step_id"] is not None),
            poison=sorted(row["step_id"] for row in rows if row["outcome"] == State.FAILED),
        )

    async def tend(self) -> Tended:
        promoted = (await self._execute(sql.PROMOTE, ())).row_count
        await self._execute(sql.PARK, ())
        promoted += (await self._execute(sql.UNPARK, ())).row_count
        due = await self._execute(sql.NEXT_DUE, ())
        if promoted:
            await self._notify(CHANNEL)
        return Tended(promoted=promoted, next_due=due.rows[0]["seconds"])

    async def cancel(self, *, group_id: int | None, run_id: int | None) -> int:
        """A batch at a time; then those that made cancelled runs are counted, one by one.

        Within the batch they would be waited for, by two cancels that have each other's.
        """
        parents: set[int] = set()
        changed = await self._change(sql.CANCEL, group_id, run_id, parents)
        for parent in sorted(parents):
            await self._steps(lambda one=parent: self._recount(one))  # type: ignore[misc]
        if parents:
            await self._notify(CHANNEL)
        return changed

    def _recount(self, run_id: int) -> Steps[None]:
        yield sql.LOCK_RUNS, ([run_id],)
        yield sql.RECOUNT, ([run_id],)

    async def pause(self, *, group_id: int | None, run_id: int | None) -> int:
        return await self._change(sql.PAUSE, group_id, run_id)

    async def resume(self, *, group_id: int | None, run_id: int | None) -> int:
        return await self._change(sql.RESUME, group_id, run_id)

    async def retry(self, *, group_id: int | None, run_id: int | None, hard: bool) -> int:
        """One transaction."""
        of_group = group_id is not None
        statement = (sql.RETRY_HARD if hard else sql.RETRY)[0 if of_group else 2]
        parents = sql.PARENTS_OF_GROUP if of_group else sql.PARENTS_OF_RUN

        def steps() -> Steps[tuple[int, set[int]]]:
            locked = (yield parents, (group_id if of_group else run_id,)).rows
            rows = (yield statement, (group_id, run_id)).rows
            ours = {row["id"] for row in (*locked, *rows)}
            made = {row["parent_id"] for row in rows if row["parent_id"] is not None}
            made |= {row["id"] for row in rows if row["fan"] is not None}
            if made & ours:
                yield sql.RECOUNT, (sorted(made & ours),)
            return len(rows), made - ours

        changed, others = await self._steps(steps)
        # Those that began to make runs meanwhile: not waited for while anything is held.
        for parent in sorted(others):
            await self._steps(lambda one=parent: self._recount(one))  # type: ignore[misc]
        return changed

    async def _change(
        self,
        statements: tuple[str, str, str, str],
        group_id: int | None,
        run_id: int | None,
        parents: set[int] | None = None,
    ) -> int:
        change, left = statements[:2] if group_id is not None else statements[2:]
        changed = 0
        while True:
            rows = (await self._execute(change, (group_id, run_id))).rows
            changed += len(rows)
            if parents is not None:
                made = (row for row in rows if row["status"] == State.CANCELLED)
                parents.update(row["parent_id"] for row in made if row["parent_id"] is not None)
            found = await self._execute(left, (group_id, run_id))
            if not found.rows[0]["n"]:
                return changed
            await anyio.sleep(0.005)  # another transaction has the rest locked, for a moment

    async def prune(self, older_than: float, limit: int) -> int:
        now = await self._steps(lambda: lease_now("postgresql"))
        removed = 0
        old = await self._execute(shared.OLD_GROUPS, (now - older_than, limit))
        for group_id in [row["id"] for row in old.rows]:
            while gone := (await self._execute(sql.FORGET_RUNS, (group_id,))).rows[0]["n"]:
                removed += gone
            await self._steps(lambda one=group_id: self._forget_group(one))  # type: ignore[misc]
        return removed

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
        steady = (worker_id, worker_id, self._terms.lease / 2)
        params = (lease, seconds, [str(kind) for kind in kinds], list(left), *steady, limit)
        rows = (await self._execute(sql.TAKE_EVENTS_OF[audience], params)).rows
        return sorted((event_from(row) for row in rows), key=lambda event: event.id)

    async def _execute(self, statement: str, params: Sequence[Any]) -> QueryResult:
        return await translate_errors(lambda: self._db.execute(statement, params))

    def _list(self, values: Sequence[Any]) -> Any:
        return list(values)
