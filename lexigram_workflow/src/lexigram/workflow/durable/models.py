"""Steps and runs as handlers and callers see them; the names are those of Soliplex Ingester."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from attrs import field, frozen

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.workflow.durable.plan import RunPlan
from lexigram.workflow.durable.store.records import Claim, Row, run_status


@frozen(kw_only=True)
class RunStep:
    """One stage of a run."""

    id: int
    workflow_run_id: int
    # from 1
    workflow_step_number: int
    workflow_step_name: str
    step_type: str
    is_last_step: bool
    priority: int
    # failed attempts
    retry: int
    # attempts in all
    retries: int
    status: RunStatus
    status_message: str | None = None
    status_meta: Mapping[str, Any] = field(factory=dict[str, Any])
    worker_id: str | None = None
    lease_token: str | None = None
    resource_key: str | None = None
    # of the lock on resource_key, while the step runs
    lock_fence: int | None = None


@frozen(kw_only=True)
class WorkflowRun:
    """One execution of a workflow."""

    id: int
    workflow_definition_id: str
    run_group_id: int
    batch_id: int | None
    doc_id: str | None
    priority: int
    tenant: str | None
    status: RunStatus
    status_message: str | None = None
    # the run that made it
    parent_id: int | None = None
    # why it waits for an answer
    parked: str | None = None
    run_params: Mapping[str, Any] = field(factory=dict[str, Any])


@frozen(kw_only=True)
class RunGroup:
    """Runs that were submitted together."""

    id: int
    name: str | None
    workflow_definition_id: str
    param_definition_id: str | None
    batch_id: int | None
    status: RunStatus


def step_of_claim(claim: Claim, plan: RunPlan, worker_id: str) -> RunStep:
    """The step that was just claimed."""
    step = plan.steps[claim.step_no - 1]
    return RunStep(
        id=claim.step_id,
        workflow_run_id=claim.run_id,
        workflow_step_number=claim.step_no,
        workflow_step_name=step.name,
        step_type=step.step_type,
        is_last_step=claim.step_no == len(plan.steps),
        priority=claim.priority,
        retry=claim.retry,
        retries=step.retries,
        status=RunStatus.RUNNING,
        worker_id=worker_id,
        lease_token=claim.lease,
        resource_key=claim.resource_key,
        lock_fence=claim.lock_fence,
    )


def run_of_claim(claim: Claim, plan: RunPlan) -> WorkflowRun:
    """The run that a claimed step belongs to."""
    return WorkflowRun(
        id=claim.run_id,
        workflow_definition_id=plan.workflow_id,
        run_group_id=claim.group_id,
        batch_id=claim.batch_id,
        doc_id=claim.doc_id,
        priority=claim.priority,
        tenant=claim.tenant,
        status=RunStatus.RUNNING,
        parent_id=claim.parent_id,
        run_params=claim.params,
    )


def step_from(row: Row) -> RunStep:
    """A row of the view."""
    values = dict(row)
    values["status"] = RunStatus(values["status"])
    values["is_last_step"] = bool(values["is_last_step"])
    values["status_meta"] = orjson.loads(values["status_meta"] or "{}")
    return RunStep(**values)


def run_from(row: Row, plan: RunPlan) -> WorkflowRun:
    """A row of the runs."""
    return WorkflowRun(
        id=row["id"],
        workflow_definition_id=plan.workflow_id,
        run_group_id=row["group_id"],
        batch_id=row["batch_id"],
        doc_id=row["doc_id"],
        priority=row["priority"],
        tenant=row["tenant"],
        status=run_status(row),
        status_message=row["message"],
        parent_id=row["parent_id"],
        parked=row["parked"],
        run_params=orjson.loads(row["params"]),
    )


def group_from(row: Row) -> RunGroup:
    """A row of the groups."""
    return RunGroup(
        id=row["id"],
        name=row["name"],
        workflow_definition_id=row["workflow_id"],
        param_definition_id=row["param_id"],
        batch_id=row["batch_id"],
        status=RunStatus(row["status"].upper()),
    )
