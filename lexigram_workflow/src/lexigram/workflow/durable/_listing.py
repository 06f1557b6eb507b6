"""Records as plain data, ready for JSON: for the command line and REST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from lexigram.workflow.durable.definitions.model import ParameterSet, WorkflowDefinition
from lexigram.workflow.durable.orchestrated.runs import OrchestratedRun
from lexigram.workflow.durable.questions import OpenQuestion
from lexigram.workflow.durable.store.overview import moment
from lexigram.workflow.durable.store.records import Unserved
from lexigram.workflow.durable.store.sync_states import SyncState


def describe_workflow(item: WorkflowDefinition) -> dict[str, Any]:
    """A workflow with its steps, under the names that YAML has."""
    return {
        "id": item.id,
        "name": item.name,
        "meta": dict(item.meta),
        "steps": [step.key for step in item.steps],
        "item_steps": [
            {
                "key": step.key,
                "type": step.step_type,
                "name": step.name,
                "method": step.method,
                "retries": step.retries,
                "timeout": step.timeout,
                "backoff": step.backoff,
                "backoff_cap": step.backoff_cap,
                "resource_key": step.resource_key,
                "resource_shared": step.resource_shared,
                "pool": step.pool,
                "when": step.when,
                "parameters": dict(step.parameters),
            }
            for step in item.steps
        ],
        "lifecycle_events": {
            str(event): [
                {
                    "name": one.name,
                    "method": one.method,
                    "retries": one.retries,
                    "timeout": one.timeout,
                    "parameters": dict(one.parameters),
                }
                for one in handlers
            ]
            for event, handlers in item.lifecycle.items()
        },
        "source": item.source,
        "origin": item.origin,
    }


def describe_params(item: ParameterSet) -> dict[str, Any]:
    """A parameter set with its values."""
    return {
        "id": item.id,
        "name": item.name,
        "meta": dict(item.meta),
        "steps": list(item.config),
        "config": {step: dict(values) for step, values in item.config.items()},
        "source": item.source,
        "origin": item.origin,
    }


def describe_orchestration(run: OrchestratedRun) -> dict[str, Any]:
    """The state of a pipeline, graph or saga; values that JSON lacks become strings."""
    return {
        "run_id": run.run_id,
        "group_id": run.group_id,
        "name": run.name,
        "status": run.status.value,
        "done": list(run.done),
        "at_work": list(run.at_work),
        "questions": [
            {"run_id": one.run_id, "step": one.step, "prompt": one.prompt} for one in run.questions
        ],
        "error": run.error,
        "state": _plain(run.state),
    }


def describe_question(item: OpenQuestion) -> dict[str, Any]:
    """A question, and where to answer it."""
    return {
        "run_id": item.run_id,
        "run_group_id": item.group_id,
        "parent_run_id": item.parent_id,
        "workflow_definition_id": item.workflow_id,
        "step": item.step,
        "prompt": item.prompt,
        "asked_date": moment(item.asked_at),
    }


def describe_unserved(item: Unserved) -> dict[str, Any]:
    """Steps that no live worker claims, or events whose handler none has."""
    return {
        "handler": item.handler,
        "pool": item.queue,
        "event": item.event,
        "waits_since": moment(item.waits_since),
        "message": str(item),
    }


def describe_sync(item: SyncState) -> dict[str, Any]:
    """The sync state of a source, under the names of Soliplex Ingester."""
    return {
        "source_id": item.source_id,
        "last_commit_sha": item.commit_sha,
        "last_sync_date": moment(item.synced_at),
        "branch": item.branch,
        "sync_metadata": dict(item.metadata),
    }


def _plain(values: Mapping[str, Any]) -> Any:
    text = orjson.dumps(dict(values), default=_encode, option=orjson.OPT_NON_STR_KEYS)
    return orjson.loads(text)


def _encode(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return list(cast("set[Any]", value))
    return str(value)
