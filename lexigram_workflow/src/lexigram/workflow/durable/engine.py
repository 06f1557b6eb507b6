"""Durable runs: submit them, claim their steps one by one, cancel and retry them.

The names are those of Soliplex Ingester. Every call is one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

from attrs import evolve

from lexigram.contracts.data.locks import ResourceLock, ResourceLockKind
from lexigram.contracts.workflow.durable import RunGroupStats, RunStatus
from lexigram.contracts.workflow.limits import (
    MAX_SECONDS,
    MAX_TEXT_LENGTH,
    check_id,
    check_name,
    check_optional_ids,
    check_optional_names,
    check_page,
    check_seconds,
    check_text,
    check_timeout,
)
from lexigram.sql.database import Database
from lexigram.sql.locks import SqlResourceLocks
from lexigram.sql.text import storable_text
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
from lexigram.workflow.durable.plan import NewRun, RunPlan, json_text
from lexigram.workflow.durable.store.base import DurableStore
from lexigram.workflow.durable.store.records import (
    ANYTHING,
    Child,
    End,
    EndKind,
    Handled,
    Row,
    Selection,
    State,
    Submitted,
    Terms,
    Unserved,
    jitter,
    run_status,
)
from lexigram.workflow.durable.store.views import STEP_FACTOR

_PLANS = 1_000  # plans kept in memory


class DurableEngine:
    """The engine on one database; any number of them, in any number of processes, work together.

    A finished step is not run again; an interrupted step is. Results of a worker are accepted
    only while its lease holds. Every number and text is checked here (InvalidRunError); DurableError
    is a database that fails. ``store`` has the batch forms that workers use.
    """

    def __init__(self, database: Database, terms: Terms | None = None) -> None:
        self.database = database
        self.terms = terms or Terms()
        self.store: DurableStore = _store(database, self.terms)
        self.locks = SqlResourceLocks(database)
        # those that ``plan`` has loaded; they never change
        self.plans: dict[int, RunPlan] = {}

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
        check_optional_names(name=name, idempotency_key=idempotency_key)
        return await self.store.submit(plan, runs, name, idempotency_key)

    # --- kinds of steps -------------------------------------------------------------------------

    async def unserved(self, group_id: int | None = None) -> Sequence[Unserved]:
        """Kinds of steps and lifecycle handlers that runs wait for and no live worker has.

        For a group the result is empty while there is no live worker at all.
        """
        check_optional_ids(group_id=group_id)
        return await self.store.unserved(group_id)

    # --- claiming -------------------------------------------------------------------------------

    async def claim_next_step(
        self,
        worker_id: str,
        lease_token: str,
        allowed_types: Sequence[str] | None = None,
        batch_id: int | None = None,
    ) -> RunStep | None:
        """The step that is due now, leased to the worker; None when there is none.

        ``lease_token`` must be new for every claim: it identifies the claim in later calls.
        ``allowed_types`` are pools: the types of steps that name no pool. It counts as begun.
        """
        check_name("worker_id", worker_id)
        check_name("lease_token", lease_token)
        check_optional_ids(batch_id=batch_id)
        for pool in allowed_types or ():
            check_name("allowed_types", pool)
        selection = ANYTHING if allowed_types is None else Selection(types=allowed_types)
        selection = evolve(selection, batch_id=batch_id)
        claims = (await self.store.claim(worker_id, lease_token, selection, 1)).claims
        if not claims and (await self.store.tend()).promoted:
            claims = (await self.store.claim(worker_id, lease_token, selection, 1)).claims
        if not claims or not await self.begin_step(claims[0].run_id, lease_token):
            return None
        return step_of_claim(claims[0], await self.plan(claims[0].plan_id), worker_id)

    async def begin_step(self, run_id: int, lease_token: str) -> bool:
        """Count that a claimed step begins; False when the lease was lost.

        A step whose worker has ended so often as ``Terms.max_lost`` while it was begun is poison:
        it fails. Workers count from the second begin on (``Claim.lost``), so that the first costs
        nothing. What was claimed and not begun counts nothing.
        """
        check_id("run_id", run_id)
        check_name("lease_token", lease_token)
        return await self.store.begin_step(run_id, lease_token)

    # --- ending ---------------------------------------------------------------------------------

    async def complete_step(
        self,
        step_id: int,
        lease_token: str,
        message: str = "success",
        meta: Mapping[str, Any] | None = None,
    ) -> bool:
        """Complete the step and continue the run; False when the lease was lost."""
        end = _end(step_id, lease_token, EndKind.COMPLETED, message, meta)
        return (await self.store.finish([end]))[0] is not None

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
        ended = (await self.store.finish([end]))[0]
        if ended is None:
            return None
        return RunStatus.FAILED if ended.state is State.FAILED else RunStatus.ERROR

    async def release_step(self, step_id: int, lease_token: str) -> bool:
        """Give the step back undone; no attempt is used up. False when the lease was lost."""
        end = _end(step_id, lease_token, EndKind.RELEASED, "released", None)
        return (await self.store.finish([end]))[0] is not None

    # --- derived state --------------------------------------------------------------------------

    async def recompute_run_status(self, run_id: int) -> RunStatus | None:
        """The status of a run, from where its cursor is; its group is counted anew."""
        check_id("run_id", run_id)
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
        check_id("run_group_id", run_group_id)
        await self.store.reconcile(run_group_id)
        return await self.store.take_group_end(run_group_id)

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
        check_name("key", key)
        check_timeout("ttl", ttl)
        if max_wait is not None:
            check_seconds("max_wait", max_wait)
        return self.locks.hold(key, kind=holder_kind, ttl=ttl, max_wait=max_wait, meta=meta)

    async def sweep_expired_resource_locks(self) -> int:
        """Remove rows of locks that are over; how many."""
        return await self.locks.sweep_expired()

    async def force_release_resource_lock(self, key: str, *, reason: str) -> bool:
        """Take a lock from its holder; the holder and the reason are logged."""
        check_name("resource_key", key)
        check_text("reason", reason)
        return await self.locks.force_release(key, reason=reason)

    # --- by hand --------------------------------------------------------------------------------

    async def cancel(self, *, group_id: int | None = None, run_id: int | None = None) -> int:
        """Cancel what is not final; how many runs. Running steps are signalled, not awaited."""
        return await self.store.cancel(**_target(group_id, run_id))

    async def pause(self, *, group_id: int | None = None, run_id: int | None = None) -> int:
        """Pause runs after their running steps; how many."""
        return await self.store.pause(**_target(group_id, run_id))

    async def resume(self, *, group_id: int | None = None, run_id: int | None = None) -> int:
        """Resume paused runs; how many."""
        return await self.store.resume(**_target(group_id, run_id))

    async def retry(
        self, *, group_id: int | None = None, run_id: int | None = None, hard: bool = False
    ) -> int:
        """Begin failed and cancelled runs again where they stopped, and reopen the group.

        ``hard`` takes every run that is not completed, also from the worker that has it.
        """
        return await self.store.retry(**_target(group_id, run_id), hard=hard)

    async def answer(self, run_id: int, value: Any) -> None:
        """Resume a parked run: its step is claimed again and gets the JSON-ready value.

        Raises RunNotParkedError when the run waits for no answer, also for a second answer.
        """
        check_id("run_id", run_id)
        text = json_text("answer", value)
        if not await self.store.answer(run_id, text):
            raise RunNotParkedError(
                f"run {run_id} does not wait for an answer",
                details={"run_id": run_id},
                hint="it was answered, cancelled or retried before, or never parked",
            )

    async def prune(self, older_than: float, *, groups: int = 100) -> int:
        """Remove groups that ended so many seconds ago, with all they have; how many runs."""
        check_seconds("older_than", older_than, -MAX_SECONDS)  # below 0: whatever ended
        check_page(groups, 0)
        return await self.store.prune(older_than, groups)

    # --- events ---------------------------------------------------------------------------------

    async def lifecycle_history(self, group_id: int) -> Sequence[Handled]:
        """The outcome of the handlers of a group's events, those of its runs and steps included."""
        check_id("group_id", group_id)
        return await self.store.lifecycle(group_id)

    # --- to look at -----------------------------------------------------------------------------

    async def plan(self, plan_id: int) -> RunPlan:
        """The plan with this id; raises RunNotFoundError."""
        found = self.plans.get(plan_id)
        if found is None:
            check_id("plan_id", plan_id)
            found = await self.store.plan(plan_id)
            if found is None:
                raise RunNotFoundError(f"there is no plan {plan_id}")
            if len(self.plans) >= _PLANS:
                self.plans.clear()
            self.plans[plan_id] = found
        return found

    async def run(self, run_id: int) -> WorkflowRun:
        """One run; raises RunNotFoundError."""
        check_id("run_id", run_id)
        row = await self.store.run(run_id)
        if row is None:
            raise RunNotFoundError(f"there is no run {run_id}", details={"run_id": run_id})
        return run_from(row, await self.plan(row["plan_id"]))

    async def steps(self, run_id: int) -> Sequence[RunStep]:
        """All steps of a run, those not reached yet included."""
        check_id("run_id", run_id)
        return [step_from(row) for row in await self.store.steps(run_id)]

    async def children(self, run_id: int, step_no: int | None = None) -> Sequence[Child]:
        """The runs that a step of a run made; None is the last step that made some."""
        check_id("run_id", run_id)
        check_optional_ids(step_no=step_no)
        return await self.store.children(run_id, step_no)

    async def attempts(self, run_id: int) -> Sequence[Row]:
        """The history of a run: every attempt that ended."""
        check_id("run_id", run_id)
        return await self.store.attempts(run_id)

    async def stats(self, group_id: int) -> RunGroupStats:
        """Statistics of a group; cancelled runs count as failed. Raises RunNotFoundError."""
        check_id("group_id", group_id)
        row = await self.store.stats(group_id)
        if row is None:
            raise RunNotFoundError(f"there is no group {group_id}", details={"group_id": group_id})
        # Runs that wait may wait for runs they made, at steps that no worker claims. Those that
        # ended may have events whose handlers no worker has.
        may_wait = row["waiting"] or row["lacks_handlers"]
        unserved = await self.unserved(group_id) if may_wait else ()
        return RunGroupStats(
            total_runs=row["total"],
            completed=row["completed"],
            running=row["running"],
            pending=row["pending"],
            failed=row["failed"],
            average_duration=row["average_duration"],
            group_status=RunStatus(row["status"].upper()),
            problems=tuple(str(one) for one in unserved),
        )


def _store(database: Database, terms: Terms) -> DurableStore:
    if database.dialect == "sqlite":
        from lexigram.workflow.durable.store.sqlite import SqliteDurableStore

        return SqliteDurableStore(database, terms)
    from lexigram.workflow.durable.store.postgres import PostgresDurableStore

    return PostgresDurableStore(database, terms)


def _end(
    step_id: int, lease: str, kind: EndKind, message: str, meta: Mapping[str, Any] | None
) -> End:
    check_id("step_id", step_id)
    check_name("lease_token", lease)
    if not isinstance(cast("object", message), str):
        check_text("message", message)
    text = None if meta is None else json_text("meta", dict(meta))
    run_id, step_no = divmod(step_id, STEP_FACTOR)
    return End(
        run_id=run_id,
        step_no=step_no,
        lease=lease,
        kind=kind,
        message=storable_text(message[:MAX_TEXT_LENGTH]),
        meta=text,
    )


def _target(group_id: int | None, run_id: int | None) -> dict[str, int | None]:
    if (group_id is None) == (run_id is None):
        raise PlanInvalidError("a group or a run is required", hint="give group_id or run_id")
    check_optional_ids(group_id=group_id, run_id=run_id)
    return {"group_id": group_id, "run_id": run_id}
