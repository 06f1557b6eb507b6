"""Rows of the database as records, and records as the JSON that statements take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.workflow.durable._values import json_text
from lexigram.workflow.durable.plan import EVENT_BITS, LifeCycleEvent, NewRun, StepPlan
from lexigram.workflow.durable.store.records import (
    ITEM,
    Audience,
    Child,
    Claim,
    End,
    Ended,
    GroupEvent,
    Handled,
    Row,
    State,
    run_status,
)


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


def lacks_text(lacks: Sequence[int]) -> str:
    """Kinds of steps as a check-in has them: each is found by LIKE."""
    return f",{','.join(map(str, lacks))},"


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
