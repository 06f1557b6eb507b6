"""Durable runs: submit them, claim their steps, say how they ended, and look after the rest.

The names are the seed's; batch forms stand beside them. Every call is one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson
from attrs import evolve

from lexigram.contracts.data.locks import ResourceLock, ResourceLockKind
from lexigram.contracts.workflow.durable import RunGroupStats, RunStatus
from lexigram.sql.database import Database
from lexigram.sql.locks import SqlResourceLocks
from lexigram.workflow.durable.errors import (
    PlanInvalidError,
    RunNotFoundError,
    RunNotParkedError,
)
from lexigram.workflow.durable.models import (
    RunStep,
    WorkflowRun,
    run_from,
    step_from,
    step_of_claim,
)
from lexigram.workflow.durable.plan import LifeCycleEvent, NewRun, RunPlan
from lexigram.workflow.durable.store import (
    ANYTHING,
    Audience,
    Beat,
    Child,
    Claimed,
    DurableStore,
    End,
    Ended,
    EndKind,
    GroupEvent,
    Handled,
    Reaped,
    Row,
    Selection,
    State,
    Submitted,
    Tended,
    Terms,
    jitter,
    run_status,
)
from lexigram.workflow.durable.views import STEP_FACTOR

_PLANS = 1_000  # plans kept in memory; they never change


class DurableEngine:
    """The engine on one database; any number of them, in any number of processes, work together.

    A finished step is not done again; a step that was cut off is. What a worker says is taken
    only while its lease holds. Methods raise DurableError when the database fails.
    """

    def __init__(self, database: Database, terms: Terms | None = None) -> None:
        self.database = database
        self.terms = terms or Terms()
        self.store: DurableStore = _store(database, self.terms)
        self.locks = SqlResourceLocks(database)
        self._plans: dict[int, RunPlan] = {}

    # --- in -------------------------------------------------------------------------------------

    async def submit(
        self,
        plan: RunPlan,
        runs: Sequence[NewRun],
        *,
        name: str | None = None,
        idempotency_key: str | None = None,
    ) -> Submitted:
        """Store a group of runs in one transaction.

        A second call with the key finds the first group and stores nothing. A run whose own
        ``idempotency_key`` is known is not made again: its number is in the answer all the same.
        """
        if not runs:
            raise PlanInvalidError("a group needs at least one run", hint="submit some runs")
        return await self.store.submit(plan, runs, name, idempotency_key)

    # --- claiming -------------------------------------------------------------------------------

    async def claim_next_step(
        self,
        worker_id: str,
        lease_token: str,
        allowed_types: Sequence[str] | None = None,
        batch_id: int | None = None,
    ) -> RunStep | None:
        """The step that is due now, leased to the worker; None when there is none.

        ``lease_token`` must be new for every claim: it is what later calls are judged by.
        ``allowed_types`` are pools: the types of steps that name no pool.
        """
        selection = ANYTHING if allowed_types is None else Selection(types=allowed_types)
        if batch_id is not None:
            selection = evolve(selection, batch_id=batch_id)
        claims = (await self.claim_steps(worker_id, lease_token, selection, 1)).claims
        if not claims and (await self.store.tend()).promoted:
            claims = (await self.claim_steps(worker_id, lease_token, selection, 1)).claims
        if not claims:
            return None
        return step_of_claim(claims[0], await self.plan(claims[0].plan_id), worker_id)

    async def claim_steps(
        self, worker_id: str, lease_token: str, selection: Selection, limit: int
    ) -> Claimed:
        """Up to ``limit`` steps at once, all under one token."""
        return await self.store.claim(worker_id, lease_token, selection, limit)

    # --- ending ---------------------------------------------------------------------------------

    async def complete_step(
        self,
        step_id: int,
        lease_token: str,
        message: str = "success",
        meta: Mapping[str, Any] | None = None,
    ) -> bool:
        """The step is done and the run goes on; False when the lease was lost."""
        end = _end(step_id, lease_token, EndKind.COMPLETED, message, meta)
        return (await self.finish_steps([end]))[0] is not None

    async def error_step(
        self,
        step_id: int,
        lease_token: str,
        message: str,
        meta: Mapping[str, Any] | None = None,
        *,
        fatal: bool = False,
    ) -> RunStatus | None:
        """ERROR when attempts are left, FAILED when not, None when the lease was lost.

        ``fatal`` fails it whatever is left.
        """
        end = evolve(
            _end(step_id, lease_token, EndKind.ERROR, message, meta), fatal=fatal, jitter=jitter()
        )
        ended = (await self.finish_steps([end]))[0]
        if ended is None:
            return None
        return RunStatus.FAILED if ended.state is State.FAILED else RunStatus.ERROR

    async def release_step(self, step_id: int, lease_token: str) -> bool:
        """Give the step back undone; no attempt is used up. False when the lease was lost."""
        end = _end(step_id, lease_token, EndKind.RELEASED, "released", None)
        return (await self.finish_steps([end]))[0] is not None

    async def finish_steps(self, ends: Sequence[End]) -> Sequence[Ended | None]:
        """Write many ends at once; None where the lease was lost."""
        return await self.store.finish(ends)

    # --- staying alive --------------------------------------------------------------------------

    async def heartbeat(
        self, worker_id: str, held: Sequence[tuple[int, str]] = ()
    ) -> Sequence[Beat]:
        """Check in and renew the leases ``(run id, lease token)``; what became of each."""
        return await self.store.heartbeat(worker_id, held)

    async def check_out(self, worker_id: str) -> None:
        """Remove the check-in of a worker that stops."""
        await self.store.check_out(worker_id)

    async def reap(self, own: Sequence[str], held: Sequence[str] | None = None) -> Reaped:
        """Take steps back whose lease is over; never from the workers named in ``own``.

        With ``held``, the leases that those workers know of: what has another lease is taken
        back from them too. They lost track of it when the database did not answer.
        """
        return await self.store.reap(own, held)

    async def tend(self) -> Tended:
        """Make claimable what is due by time or by a free resource."""
        return await self.store.tend()

    # --- derived state --------------------------------------------------------------------------

    async def recompute_run_status(self, run_id: int) -> RunStatus | None:
        """The status of a run, from where its cursor is; its group is counted anew."""
        row = await self.store.run(run_id)
        if row is None:
            return None
        await self.store.reconcile(row["group_id"])
        return run_status(row)

    async def try_complete_run_group(self, run_group_id: int) -> RunStatus | None:
        """The final status, for exactly one caller per end of the group; else None.

        The end itself is written by the statement that ends the last run. This hands out its
        event, which a worker that listens to GROUP_END takes otherwise.
        """
        await self.store.reconcile(run_group_id)
        return await self.store.take_group_end(run_group_id)

    async def reconcile(self) -> int:
        """Look at every unfinished group and count those anew that look wrong; how many were."""
        return await self.store.reconcile(None)

    async def take_duty(self, name: str, every: float) -> bool:
        """True for one caller in ``every`` seconds, of all workers of the database."""
        return await self.store.take_duty(name, every)

    # --- resources ------------------------------------------------------------------------------

    def hold_lock(
        self,
        key: str,
        holder_kind: ResourceLockKind = ResourceLockKind.CLI,
        *,
        ttl: float = 300.0,
        max_wait: float | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> AbstractAsyncContextManager[ResourceLock]:
        """Keep steps with this ``resource_key`` from running, refreshed through the block.

        Waits up to ``max_wait`` seconds (None: for ever, 0: not at all), then raises
        LockConflictError, a TimeoutError that names the holder.
        """
        return self.locks.hold(key, kind=holder_kind, ttl=ttl, max_wait=max_wait, meta=meta)

    async def sweep_expired_resource_locks(self) -> int:
        """Remove rows of locks that are over; how many."""
        return await self.locks.sweep_expired()

    async def force_release_resource_lock(self, key: str, *, reason: str) -> bool:
        """Take a lock from whoever has it; who, and why, goes to the log."""
        return await self.locks.force_release(key, reason=reason)

    # --- by hand --------------------------------------------------------------------------------

    async def cancel(self, *, group_id: int | None = None, run_id: int | None = None) -> int:
        """Cancel what is not final; how many runs. Running steps are told and not waited for."""
        return await self.store.cancel(**_target(group_id, run_id))

    async def pause(self, *, group_id: int | None = None, run_id: int | None = None) -> int:
        """Keep runs from going on; running steps end first. How many."""
        return await self.store.pause(**_target(group_id, run_id))

    async def resume(self, *, group_id: int | None = None, run_id: int | None = None) -> int:
        """Let paused runs go on; how many."""
        return await self.store.resume(**_target(group_id, run_id))

    async def retry(
        self, *, group_id: int | None = None, run_id: int | None = None, hard: bool = False
    ) -> int:
        """Begin failed and cancelled runs again where they stopped, and reopen the group.

        ``hard`` takes every run that is not completed, also from the worker that has it.
        """
        return await self.store.retry(**_target(group_id, run_id), hard=hard)

    async def answer(self, run_id: int, value: Any) -> None:
        """Let a parked run go on: its step is claimed again and gets the JSON-ready value.

        Raises RunNotParkedError when nobody waits for it, also for a second answer.
        """
        text = orjson.dumps(value).decode()
        if not await self.store.answer(run_id, text):
            raise RunNotParkedError(
                f"run {run_id} does not wait for an answer",
                details={"run_id": run_id},
                hint="it was answered, cancelled or retried before, or never parked",
            )

    async def prune(self, older_than: float, *, groups: int = 100) -> int:
        """Remove groups that ended so many seconds ago, with all they have; how many runs."""
        return await self.store.prune(older_than, groups)

    # --- events ---------------------------------------------------------------------------------

    async def take_events(
        self,
        lease_token: str,
        *,
        seconds: float,
        limit: int = 10,
        kinds: Sequence[LifeCycleEvent] = tuple(LifeCycleEvent),
        audience: Audience = Audience.LISTENER,
    ) -> Sequence[GroupEvent]:
        """Events to deliver, for so many seconds; others get them again after that.

        Starts and ends of groups are there for listeners; those of runs and steps, too, for the
        handlers of plans that have some.
        """
        return await self.store.take_events(lease_token, seconds, limit, kinds, audience)

    async def keep_events(self, held: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
        """Renew the leases ``(event id, lease token)``; those that were kept."""
        return await self.store.keep_events(held)

    async def lifecycle_history(self, group_id: int) -> Sequence[Handled]:
        """What became of the handlers of a group's events, those of its runs and steps included."""
        return await self.store.lifecycle(group_id)

    async def settle_event(self, event: GroupEvent, *, retry_in: float | None = None) -> bool:
        """The event is delivered, or shall come again; False when somebody else has it now."""
        return await self.store.settle_event(event, retry_in)

    # --- to look at -----------------------------------------------------------------------------

    def plan_at_hand(self, plan_id: int) -> RunPlan | None:
        """``plan`` for one that was asked for before; None when it was not."""
        return self._plans.get(plan_id)

    async def plan(self, plan_id: int) -> RunPlan:
        """What the runs with this plan consist of."""
        found = self._plans.get(plan_id)
        if found is None:
            found = await self.store.plan(plan_id)
            if found is None:
                raise RunNotFoundError(f"there is no plan {plan_id}")
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            self._plans[plan_id] = found
        return found

    async def run(self, run_id: int) -> WorkflowRun:
        """One run; raises RunNotFoundError."""
        row = await self.store.run(run_id)
        if row is None:
            raise RunNotFoundError(f"there is no run {run_id}", details={"run_id": run_id})
        return run_from(row, await self.plan(row["plan_id"]))

    async def steps(self, run_id: int) -> Sequence[RunStep]:
        """All steps of a run, those not reached yet included."""
        return [step_from(row) for row in await self.store.steps(run_id)]

    async def children(self, run_id: int, step_no: int | None = None) -> Sequence[Child]:
        """The runs that a step of a run made; None is the last step that made some."""
        return await self.store.children(run_id, step_no)

    async def attempts(self, run_id: int) -> Sequence[Row]:
        """The history of a run: every attempt that ended."""
        return await self.store.attempts(run_id)

    async def stats(self, group_id: int) -> RunGroupStats:
        """How far a group is; cancelled runs count as failed. Raises RunNotFoundError."""
        row = await self.store.stats(group_id)
        if row is None:
            raise RunNotFoundError(f"there is no group {group_id}", details={"group_id": group_id})
        return RunGroupStats(
            total_runs=row["total"],
            completed=row["completed"],
            running=row["running"],
            pending=row["pending"],
            failed=row["failed"],
            average_duration=row["average_duration"],
            group_status=RunStatus(row["status"].upper()),
        )


def _store(database: Database, terms: Terms) -> DurableStore:
    if database.dialect == "sqlite":
        from lexigram.workflow.durable.store_sqlite import SqliteDurableStore

        return SqliteDurableStore(database, terms)
    from lexigram.workflow.durable.store_postgres import PostgresDurableStore

    return PostgresDurableStore(database, terms)


def _end(
    step_id: int, lease: str, kind: EndKind, message: str, meta: Mapping[str, Any] | None
) -> End:
    run_id, step_no = divmod(step_id, STEP_FACTOR)
    text = None if meta is None else orjson.dumps(meta).decode()
    return End(run_id=run_id, step_no=step_no, lease=lease, kind=kind, message=message, meta=text)


def _target(group_id: int | None, run_id: int | None) -> dict[str, int | None]:
    if (group_id is None) == (run_id is None):
        raise PlanInvalidError("say which: a group or a run", hint="give group_id or run_id")
    return {"group_id": group_id, "run_id": run_id}
