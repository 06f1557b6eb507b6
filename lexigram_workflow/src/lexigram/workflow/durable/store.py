"""What a store of durable runs does, whatever it is made of; and the values that go in and out.

A row is claimable exactly while it is ``ready``: what waits for its time, for a resource or for
an operator has another status, so that claims never look at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

import orjson
from attrs import frozen

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.sql.leasing.backoff import Backoff
from lexigram.workflow.durable.plan import (
    EVENT_BITS,
    LifeCycleEvent,
    NewRun,
    RunPlan,
    StepPlan,
)
from lexigram.workflow.durable.views import STEP_FACTOR

Row: TypeAlias = Mapping[str, Any]

_JITTER = Backoff(first=1.0, cap=1.0)

# The parameter of a run that another run made for an item of its document: names the item.
ITEM = "_item"

CHANNEL = "lexigram_durable"  # there may be something to claim
CHANNEL_WANTED = "lexigram_durable_wanted"  # a running step shall stop


class State(StrEnum):
    """Where a run is."""

    READY = "ready"  # can be claimed; the only status in the claim indexes
    DELAYED = "delayed"  # until available_at: a delayed start, or the wait before another try
    BLOCKED = "blocked"  # its resource is held by somebody
    PAUSED = "paused"  # until somebody resumes it
    WAITING = "waiting"  # for the runs it made
    PARKED = "parked"  # for somebody's answer
    RUNNING = "running"  # leased until lease_until
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = (State.COMPLETED, State.FAILED, State.CANCELLED)


class EndKind(StrEnum):
    """What a worker says about an attempt."""

    COMPLETED = "completed"
    ERROR = "error"  # it failed; attempts that are left are made
    RELEASED = "released"  # given back undone; no attempt is used up
    PARKED = "parked"  # it waits for an answer; the same step comes again with it


@frozen(kw_only=True)
class Claim:
    """A step that was claimed: the cursor of its run as it was then."""

    run_id: int
    step_no: int
    lease: str
    group_id: int
    plan_id: int
    step_type: str
    retry: int
    fence: int
    priority: int
    resource_key: str | None
    # of the lock on resource_key; give it to what is written to
    lock_fence: int | None
    doc_id: str | None
    batch_id: int | None
    tenant: str | None
    params: Mapping[str, Any]
    # of the runs it waited for before this step
    children_failed: int = 0
    # JSON: what was answered since it was parked
    answer: str | None = None
    # the run that made it
    parent_id: int | None = None
    # no other run made it and its plan has no lifecycle handlers: its ends cost less to write
    is_plain: bool = False

    @property
    def step_id(self) -> int:
        """The number of the step in all runs."""
        return self.run_id * STEP_FACTOR + self.step_no

    def at(self, ended: Ended, step: StepPlan) -> Claim:
        """The same lease at the step after it; written out, ``evolve`` takes twice the time."""
        return Claim(
            run_id=self.run_id,
            step_no=ended.step_no,
            lease=self.lease,
            group_id=self.group_id,
            plan_id=self.plan_id,
            step_type=step.queue,
            retry=0,
            fence=ended.fence,
            priority=self.priority,
            resource_key=step.resource_key,
            lock_fence=self.lock_fence,
            doc_id=self.doc_id,
            batch_id=self.batch_id,
            tenant=self.tenant,
            params=self.params,
            parent_id=self.parent_id,
            is_plain=self.is_plain,
        )


@frozen(kw_only=True)
class Claimed:
    """Answer to ``claim``."""

    claims: Sequence[Claim]
    # steps that were not claimed because their resource was taken at this very moment
    lost_races: int = 0


@frozen(kw_only=True)
class Spawn:
    """Runs that a step makes: the next step is claimed when all of them are final."""

    plan: RunPlan
    runs: Sequence[NewRun]


@frozen(kw_only=True)
class End:
    """How one attempt ended, ready to be written."""

    run_id: int
    step_no: int
    lease: str
    kind: EndKind
    message: str | None = None
    # JSON
    meta: str | None = None
    # keep the lease for the next step
    sticky: bool = False
    # an error that no further attempt can mend
    fatal: bool = False
    # part of the backoff that is waited
    jitter: float = 1.0
    # a later step to go on with, instead of the one that follows
    next_no: int | None = None
    # runs to make, in the same transaction
    spawns: Sequence[Spawn] = ()
    # True when the claim was; False is always right
    is_plain: bool = False


@frozen(kw_only=True)
class Ended:
    """Where a run is after an end was written."""

    run_id: int
    state: State
    step_no: int
    retry: int
    group_id: int
    fence: int


@frozen(kw_only=True)
class Child:
    """A run that another run made, for the step that gathers them."""

    run_id: int
    status: RunStatus
    doc_id: str | None
    run_params: Mapping[str, Any]
    # what its last step returned, or the facts of its error
    status_meta: Mapping[str, Any]
    status_message: str | None


@frozen(kw_only=True)
class Beat:
    """What a heartbeat found out about one lease."""

    run_id: int
    lease: str
    is_kept: bool
    wanted: Literal["cancel", "pause"] | None = None


@frozen(kw_only=True)
class Reaped:
    """Answer to ``reap``: workers that are gone, and steps taken back from them."""

    workers: Sequence[str]
    steps: Sequence[int]


@frozen(kw_only=True)
class Tended:
    """Answer to ``tend``."""

    # runs that can be claimed since now
    promoted: int
    # seconds until the next one is due by time
    next_due: float | None


@frozen(kw_only=True)
class GroupEvent:
    """A stored event of a group, a run or a step.

    ``ending`` counts the ends of the group; of a run or step it is the fence of the attempt.
    """

    id: int
    kind: LifeCycleEvent
    group_id: int
    ending: int
    status: RunStatus
    tries: int
    lease: str
    # None for events of the group
    run_id: int | None = None
    # None for events of the group
    step_no: int | None = None


class Audience(StrEnum):
    """For whom an event was written."""

    LISTENER = "listener"  # listeners of workers: start and end of every group
    HANDLER = "handler"  # handlers of the plan: what it has handlers for


@frozen(kw_only=True)
class Handled:
    """What became of one handler of an event."""

    event_id: int
    handler_no: int
    handler_name: str
    kind: LifeCycleEvent
    group_id: int
    run_id: int | None
    step_no: int | None
    # RUNNING, ERROR (will be tried again), COMPLETED, FAILED
    status: RunStatus
    attempts: int
    worker_id: str | None
    started_at: float
    finished_at: float | None
    message: str | None
    meta: Mapping[str, Any]


@frozen(kw_only=True)
class Submitted:
    """Answer to ``submit``. ``runs`` has the id of each run in the order given.

    ``is_new`` is False when the group was there before by its idempotency key.
    """

    group_id: int
    runs: Sequence[int]
    is_new: bool = True


@frozen(kw_only=True)
class Terms:
    """What statements need to know beside their arguments."""

    # seconds of a lease, and of the locks that go with it
    lease: float = 600.0
    # seconds of waiting that a point of priority is worth
    ageing: float = 600.0
    # seconds between the turns of one tenant's runs
    tenant_gap: float = 0.1
    # workers that may die of a run before it counts as failed
    max_lost: int = 25


@frozen(kw_only=True)
class Selection:
    """Which pools (a step's type, unless it names one): exactly these, or all but these."""

    types: Sequence[str]
    excluded: bool = False
    # of one batch only
    batch_id: int | None = None


ANYTHING = Selection(types=(), excluded=True)


class DurableStore(Protocol):
    """Keeps durable runs. Every method is one transaction; time is the store's own clock.

    Every write of a worker carries its lease: what the holder of a lost lease says changes
    nothing, and the answer tells.
    """

    async def submit(
        self, plan: RunPlan, runs: Sequence[NewRun], name: str | None, key: str | None
    ) -> Submitted: ...

    async def claim(
        self, worker_id: str, lease: str, selection: Selection, limit: int
    ) -> Claimed: ...

    async def finish(self, ends: Sequence[End]) -> Sequence[Ended | None]: ...

    async def heartbeat(
        self, worker_id: str, held: Sequence[tuple[int, str]]
    ) -> Sequence[Beat]: ...

    async def check_out(self, worker_id: str) -> None: ...

    async def reap(self, own: Sequence[str], held: Sequence[str] | None = None) -> Reaped: ...

    async def tend(self) -> Tended: ...

    async def cancel(self, *, group_id: int | None, run_id: int | None) -> int: ...

    async def pause(self, *, group_id: int | None, run_id: int | None) -> int: ...

    async def resume(self, *, group_id: int | None, run_id: int | None) -> int: ...

    async def retry(self, *, group_id: int | None, run_id: int | None, hard: bool) -> int: ...

    async def reconcile(self, group_id: int | None) -> int: ...

    async def prune(self, older_than: float, limit: int) -> int: ...

    async def answer(self, run_id: int, answer: str) -> bool: ...

    async def children(self, run_id: int, step_no: int | None) -> Sequence[Child]: ...

    async def take_duty(self, name: str, every: float) -> bool: ...

    async def take_events(
        self,
        lease: str,
        seconds: float,
        limit: int,
        kinds: Sequence[LifeCycleEvent],
        audience: Audience,
    ) -> Sequence[GroupEvent]: ...

    async def keep_events(self, held: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]: ...

    async def plan_of_event(self, event: GroupEvent) -> int | None: ...

    async def handled(self, event_id: int) -> Sequence[Handled]: ...

    async def lifecycle(self, group_id: int) -> Sequence[Handled]: ...

    async def begin_handler(
        self, event: GroupEvent, number: int, name: str, worker_id: str
    ) -> bool: ...

    async def end_handler(
        self,
        event: GroupEvent,
        number: int,
        status: RunStatus,
        message: str | None,
        meta: str | None,
    ) -> bool: ...

    async def take_group_end(self, group_id: int) -> RunStatus | None: ...

    async def settle_event(self, event: GroupEvent, retry_in: float | None) -> bool: ...

    async def plan(self, plan_id: int) -> RunPlan | None: ...

    async def run(self, run_id: int) -> Row | None: ...

    async def group(self, group_id: int) -> Row | None: ...

    async def steps(self, run_id: int) -> Sequence[Row]: ...

    async def attempts(self, run_id: int) -> Sequence[Row]: ...

    async def stats(self, group_id: int) -> Row | None: ...


def jitter() -> float:
    """Part of a backoff to wait: between half and all of it."""
    return _JITTER.delay(1)


def run_status(row: Row) -> RunStatus:
    """The status of a run as callers see it, from its cursor."""
    state = State(row["status"])
    if state in FINAL or state is State.RUNNING:
        return RunStatus(state.value.upper())
    return RunStatus.RUNNING if row["started_at"] is not None else RunStatus.PENDING


def step_status(row: Row) -> RunStatus:
    """The status of the step that a run is at."""
    state = State(row["status"])
    if state in FINAL or state is State.RUNNING:
        return RunStatus(state.value.upper())
    return RunStatus.ERROR if row["retry"] else RunStatus.PENDING


def claim_from(row: Row) -> Claim:
    """A row that was just claimed."""
    return Claim(
        run_id=row["id"],
        step_no=row["step_no"],
        lease=row["lease"],
        group_id=row["group_id"],
        plan_id=row["plan_id"],
        step_type=row["step_type"],
        retry=row["retry"],
        fence=row["fence"],
        priority=row["priority"],
        resource_key=row["resource_key"],
        lock_fence=row["lock_fence"],
        doc_id=row["doc_id"],
        batch_id=row["batch_id"],
        tenant=row["tenant"],
        params=orjson.loads(row["params"]),
        children_failed=row["children_failed"],
        answer=row["answer"],
        parent_id=row["parent_id"],
        is_plain=row["parent_id"] is None and not row["events"],
    )


def child_from(row: Row) -> Child:
    """A row of the runs with the meta of its last attempt."""
    return Child(
        run_id=row["id"],
        status=run_status(row),
        doc_id=row["doc_id"],
        run_params={k: v for k, v in orjson.loads(row["params"]).items() if k != ITEM},
        status_meta=orjson.loads(row["meta"] or "{}"),
        status_message=row["last_message"],
    )


def ended_from(row: Row) -> Ended:
    """A row that was just finished."""
    return Ended(
        run_id=row["id"],
        state=State(row["status"]),
        step_no=row["step_no"],
        retry=row["retry"],
        group_id=row["group_id"],
        fence=row["fence"],
    )


def event_from(row: Row) -> GroupEvent:
    """A row of the events."""
    return GroupEvent(
        id=row["id"],
        kind=LifeCycleEvent(row["kind"]),
        group_id=row["group_id"],
        ending=row["ending"],
        status=RunStatus(row["status"].upper()),
        tries=row["tries"],
        lease=row["lease"],
        run_id=row["run_id"] or None,
        step_no=row["step_no"] or None,
    )


def handled_from(row: Row) -> Handled:
    """A row of the lifecycle history."""
    fields: dict[str, Any] = {
        **row,
        "kind": LifeCycleEvent(row["kind"]),
        "status": RunStatus(row["status"]),
        "run_id": row["run_id"] or None,
        "step_no": row["step_no"] or None,
        "meta": orjson.loads(row["meta"] or "{}"),
    }
    return Handled(**fields)


def group_events(
    kind: LifeCycleEvent, group: Row, ending: int, status: str, now: float
) -> Sequence[Sequence[Any]]:
    """Parameters of the events that a group has: for listeners, and for handlers of its plan."""
    event = (kind, group["id"], ending, status, now, 0, 0)
    wanted = group["events"] & EVENT_BITS[kind]
    return [(*event, Audience.LISTENER), *([(*event, Audience.HANDLER)] if wanted else [])]


def ends_json(ends: Sequence[End]) -> str:
    """The ends of one batch, as the one parameter of the finish."""
    return orjson.dumps([_end_fields(end) for end in ends]).decode()


def _end_fields(end: End) -> Mapping[str, Any]:
    fields: dict[str, Any] = {
        "run_id": end.run_id,
        "step_no": end.step_no,
        "lease": end.lease,
        "kind": end.kind,
        "message": end.message,
        "meta": end.meta,
        "sticky": end.sticky,
        "fatal": end.fatal,
        "jitter": end.jitter,
    }
    if end.next_no is not None:
        fields["next_no"] = end.next_no
    if end.spawns:
        fields["children"] = sum(len(spawn.runs) for spawn in end.spawns)
    return fields


def runs_json(runs: Sequence[NewRun]) -> str:
    """New runs, as the one parameter of their insertion."""
    return orjson.dumps(
        [
            {
                "n": number,
                "doc_id": run.doc_id,
                "batch_id": run.batch_id,
                "priority": run.priority,
                "tenant": run.tenant,
                "delay": run.delay,
                "idempotency_key": run.idempotency_key,
                "params": orjson.dumps(run.params).decode(),
            }
            for number, run in enumerate(runs)
        ]
    ).decode()


def steps_json(steps: Sequence[StepPlan]) -> str:
    """The steps of a plan, as the one parameter of their insertion."""
    return orjson.dumps(
        [
            {
                "step_no": number,
                "name": step.name,
                "step_type": step.step_type,
                "pool": step.pool,
                "retries": step.retries,
                "backoff": step.backoff,
                "backoff_cap": step.backoff_cap,
                "resource_key": step.resource_key,
                "resource_shared": step.resource_shared,
            }
            for number, step in enumerate(steps, 1)
        ]
    ).decode()
