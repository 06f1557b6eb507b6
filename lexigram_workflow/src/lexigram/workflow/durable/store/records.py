"""The values that go into and out of a store of durable runs, and how rows and JSON carry them.

A row is claimable exactly while it is ``ready``: what waits for its time, for a resource or for
an operator has another status, so that claims never look at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, TypeAlias
from urllib.parse import quote, unquote

import orjson
from attrs import field, frozen

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.contracts.workflow.limits import check_retries, check_seconds, check_timeout
from lexigram.leasing.backoff import Backoff
from lexigram.workflow.durable.plan import (
    EVENT_BITS,
    LifeCycleEvent,
    NewRun,
    RunPlan,
    StepPlan,
    json_text,
    validate_with,
)
from lexigram.workflow.durable.store.views import STEP_FACTOR

Row: TypeAlias = Mapping[str, Any]

_JITTER = Backoff(first=1.0, cap=1.0)

# The parameter of a run that another run made for an item of its document: names the item.
ITEM = "_item"

# Before the name of a lifecycle handler among what a worker lacks; kinds of steps are numbers.
HANDLER_MARK = "@"

CHANNEL = "lexigram_durable"  # there may be something to claim
CHANNEL_WANTED = "lexigram_durable_wanted"  # a running step shall stop


class State(StrEnum):
    """Where a run is."""

    READY = "ready"  # can be claimed; the only status in the claim indexes
    DELAYED = "delayed"  # until available_at: a delayed start, or the wait before another try
    BLOCKED = "blocked"  # its resource is locked
    PAUSED = "paused"  # until it is resumed
    WAITING = "waiting"  # for the runs it made
    PARKED = "parked"  # for an answer
    RUNNING = "running"  # leased until lease_until
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = (State.COMPLETED, State.FAILED, State.CANCELLED)


class EndKind(StrEnum):
    """How an attempt ended, as its worker reports it."""

    COMPLETED = "completed"
    ERROR = "error"  # it failed; attempts that are left are made
    FAILED = "failed"  # it failed permanently, and the run continues at a later step
    RELEASED = "released"  # released before it was done; no attempt is used up
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
    # how often in a row its worker ended while it had the step, and had begun it again
    lost: int = 0
    begun: int = 0
    # of ``StepKind``: its pool and handler
    kind: int = 0
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
            lock_fence=None if step.resource_key is None else self.lock_fence,
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
    # how many kinds of steps the database has
    kinds: int = 0


@frozen(kw_only=True)
class StepKind:
    """Steps of a pool that need the same of a worker; what claims go by."""

    id: int
    queue: str
    # see ``StepPlan.requires``
    handler: str
    # since when the first in line could be claimed; None: no run is at such a step
    waits_since: float | None


@frozen(kw_only=True)
class Unserved:
    """What a run waits for and no live worker takes: a kind of steps, or a lifecycle handler."""

    # the pool of the steps; None for a lifecycle handler
    queue: str | None = None
    # the kind of the events that the handler is for; None for steps
    event: str | None = None
    handler: str
    waits_since: float

    def __str__(self) -> str:
        place = f"pool {self.queue}" if self.event is None else f"event {self.event}"
        return f"no worker for handler {self.handler} ({place})"


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
    # an error that no retry can fix
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
    # of these, those that failed: their handler ended its process too often
    poison: Sequence[int] = ()


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

    @property
    def idempotency_key(self) -> str:
        """The same for each delivery of this event, and for no other event of the database."""
        of_run = "" if self.run_id is None else f"-run-{self.run_id}"
        return f"durable-{self.kind}-{self.group_id}{of_run}-{self.ending}"


class Audience(StrEnum):
    """The recipient of an event."""

    LISTENER = "listener"  # listeners of workers: start and end of every group
    HANDLER = "handler"  # handlers of the plan: what it has handlers for


@frozen(kw_only=True)
class Handled:
    """The outcome of one handler of an event."""

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
    # how often in a row its worker ended while it ran
    lost: int = 0


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
    """Settings of the statements."""

    # seconds of a lease, and of the locks that go with it
    lease: float = field(default=30.0, validator=validate_with(check_timeout))
    # seconds of waiting that a point of priority is worth
    ageing: float = field(default=600.0, validator=validate_with(check_timeout))
    # seconds between the turns of one tenant's runs
    tenant_gap: float = field(default=0.1, validator=validate_with(check_seconds))
    # how often a worker may end while a step runs before the step counts as poison and fails
    max_lost: int = field(default=25, validator=validate_with(check_retries))


@frozen(kw_only=True)
class Selection:
    """Which pools (a step's type, unless it names one): exactly these, or all but these."""

    types: Sequence[str]
    excluded: bool = False
    # of one batch only
    batch_id: int | None = None
    # those of these kinds; None: whatever their handlers are
    kinds: Sequence[int] | None = None

    def takes(self, queue: str) -> bool:
        """Whether steps of this pool are meant."""
        return (queue in self.types) is not self.excluded


ANYTHING = Selection(types=(), excluded=True)


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
        lost=row["lost"],
        begun=row["begun"],
        kind=row["step_kind"],
        is_plain=row["parent_id"] is None and not row["events"],
    )


def claims_from(rows: Sequence[Row]) -> list[Claim]:
    """The rows of a claim; one without a run is about the database only."""
    return [claim_from(row) for row in rows if row["id"] is not None]


def make_end(claim: Claim, kind: EndKind, message: str) -> End:
    """An end of an attempt that needs nothing else."""
    return End(
        run_id=claim.run_id,
        step_no=claim.step_no,
        lease=claim.lease,
        kind=kind,
        message=message,
        is_plain=claim.is_plain,
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


def make_ended(row: Row) -> Ended:
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


def make_handled(row: Row) -> Handled:
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


def lacks_text(kinds: Sequence[int], handlers: Sequence[str] = ()) -> str:
    """What a worker lacks as its check-in has it: ``,1,5,@shop.notify,``. LIKE finds each kind."""
    names = [f"{HANDLER_MARK}{quote(name, safe='')}" for name in handlers]
    return f",{','.join([*map(str, kinds), *names])},"


def read_lacking_handlers(lacks: str | None) -> frozenset[str]:
    """The lifecycle handlers in what a check-in says that its worker lacks."""
    items = (lacks or "").split(",")
    return frozenset(unquote(item[1:]) for item in items if item.startswith(HANDLER_MARK))


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
                "params": json_text(f"runs[{number}].params", run.params),
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
                "queue": step.queue,
                "requires": step.requires,
                "retries": step.retries,
                "backoff": step.backoff,
                "backoff_cap": step.backoff_cap,
                "resource_key": step.resource_key,
                "resource_shared": step.resource_shared,
            }
            for number, step in enumerate(steps, 1)
        ]
    ).decode()
