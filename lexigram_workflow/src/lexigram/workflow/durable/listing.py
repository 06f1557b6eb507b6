"""Definitions and parameter sets as plain data, for the command line and REST."""

from __future__ import annotations

from typing import Any

from lexigram.workflow.durable.definitions import ParameterSet, WorkflowDefinition


def described_workflow(item: WorkflowDefinition) -> dict[str, Any]:
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
                    "parameters": dict(one.parameters),
                }
                for one in handlers
            ]
            for event, handlers in item.lifecycle.items()
        },
        "source": item.source,
        "origin": item.origin,
    }


def described_params(item: ParameterSet) -> dict[str, Any]:
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
