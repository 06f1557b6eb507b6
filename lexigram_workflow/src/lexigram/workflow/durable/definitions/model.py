"""Workflow definitions and parameter sets, and the plan that one of each makes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from string import Formatter
from typing import Any, Final, Literal, TypeAlias

from attrs import field, frozen

from lexigram.config import ConfigProblem, ConfigTrace
from lexigram.workflow.durable.definitions._params import check_params, with_defaults
from lexigram.workflow.durable.definitions.catalog import HandlerCatalog, HandlerFault
from lexigram.workflow.durable.errors import DefinitionInvalidError
from lexigram.workflow.durable.plan import LifeCycleEvent, LifecycleHandler, RunPlan, StepPlan

Source: TypeAlias = Literal["app", "user", "package", "code"]
Overrides: TypeAlias = Mapping[str, Mapping[str, Any]]

# Types that mean the same everywhere, whether or not a workflow here has such a step.
STEP_TYPES: Final = ("ingest", "validate", "parse", "chunk", "embed", "store", "enrich", "route")
_OVERRIDES: Final = "overrides"


@frozen(kw_only=True)
class StepDefinition:
    """One entry of ``item_steps``."""

    # its key in the mapping: what parameter sets and overrides call it
    key: str
    name: str
    step_type: str
    # as written; plans have the canonical name
    method: str
    retries: int = 1
    timeout: float | None = None
    backoff: float = 0.0
    backoff_cap: float = 300.0
    # may have {names} of the step's parameters
    resource_key: str | None = None
    # steps of one claim hold it together; None: if the key is the one a store step has by itself
    resource_shared: bool | None = None
    pool: str | None = None
    when: str | None = None
    parameters: Mapping[str, Any] = field(factory=dict[str, Any])
    # where it is written, and where each parameter is
    place: str = "code"
    places: Mapping[str, str] = field(factory=dict[str, str])


@frozen(kw_only=True)
class LifecycleDefinition:
    """One handler of an event."""

    name: str
    method: str
    retries: int = 1
    timeout: float | None = None
    parameters: Mapping[str, Any] = field(factory=dict[str, Any])
    place: str = "code"


@frozen(kw_only=True)
class WorkflowDefinition:
    """What happens to each document of a workflow, step by step."""

    id: str
    name: str
    meta: Mapping[str, Any] = field(factory=dict[str, Any])
    steps: Sequence[StepDefinition]
    lifecycle: Mapping[LifeCycleEvent, Sequence[LifecycleDefinition]] = field(
        factory=dict[LifeCycleEvent, Sequence[LifecycleDefinition]]
    )
    source: Source = "code"
    # the file, or where else it comes from
    origin: str = "code"

    @property
    def names(self) -> frozenset[str]:
        """What parameters may call its steps: their keys and types."""
        return frozenset(name for step in self.steps for name in (step.key, step.step_type))


@frozen(kw_only=True)
class ParameterSet:
    """Parameters by step key or step type, for any workflow."""

    id: str
    name: str | None = None
    meta: Mapping[str, Any] = field(factory=dict[str, Any])
    config: Mapping[str, Mapping[str, Any]]
    source: Source = "code"
    origin: str = "code"
    # (step, parameter) -> where it is written
    places: Mapping[tuple[str, str], str] = field(factory=dict[tuple[str, str], str])


def make_plan(
    definition: WorkflowDefinition,
    params: ParameterSet | None,
    overrides: Overrides | None,
    handlers: HandlerCatalog,
    *,
    lancedb_dir: str = "lancedb",
) -> RunPlan:
    """The plan of a workflow with these parameters; raises DefinitionInvalidError with all faults.

    Later ones win: the step's own parameters, the set's by type, the set's by key, the
    overrides by type, the overrides by key.
    """
    problems = list(_unknown_steps(definition, overrides or {}))
    steps: list[StepPlan] = []
    for step in definition.steps:
        merged, trace = _merge_params(step, params, overrides or {})
        made = _step_plan(step, merged, trace, handlers, lancedb_dir)
        if isinstance(made, StepPlan):
            steps.append(made)
        else:
            problems += made
    if problems:
        used = f" with {params.id!r}" if params else ""
        raise DefinitionInvalidError(problems, f"the workflow {definition.id!r}{used}")
    return RunPlan(
        workflow_id=definition.id,
        param_id=params.id if params else None,
        steps=steps,
        lifecycle={
            event: [
                LifecycleHandler(
                    name=item.name,
                    handler=handlers.canonical(item.method),
                    retries=item.retries,
                    timeout=item.timeout,
                    params=item.parameters,
                )
                for item in items
            ]
            for event, items in definition.lifecycle.items()
        },
    )


def _unknown_steps(definition: WorkflowDefinition, overrides: Overrides) -> Iterator[ConfigProblem]:
    known = sorted(definition.names)
    for name in overrides:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            yield ConfigProblem(
                source=_OVERRIDES,
                key=name,
                message=f"{definition.id!r} has no such step; it has {', '.join(known)}",
                suggestion=near[0] if near else None,
            )


def _merge_params(
    step: StepDefinition, params: ParameterSet | None, overrides: Overrides
) -> tuple[dict[str, Any], ConfigTrace]:
    """The parameters of a step, and where each of them was written."""
    trace = ConfigTrace()
    trace.record((step.key,), step.place, container=True)
    merged: dict[str, Any] = {}

    def lay(values: Mapping[str, Any], place: Mapping[str, str], default: str) -> None:
        for name, value in values.items():
            merged[name] = value
            trace.record((step.key, name), place.get(name, default))

    lay(step.parameters, step.places, step.place)
    for name in dict.fromkeys((step.step_type, step.key)):
        if params is not None:
            of_step = {p: at for (owner, p), at in params.places.items() if owner == name}
            lay(params.config.get(name, {}), of_step, params.origin)
    for name in dict.fromkeys((step.step_type, step.key)):
        lay(overrides.get(name, {}), {}, _OVERRIDES)
    return merged, trace


def _step_plan(
    step: StepDefinition,
    params: Mapping[str, Any],
    trace: ConfigTrace,
    handlers: HandlerCatalog,
    lancedb_dir: str,
) -> StepPlan | list[ConfigProblem]:
    try:
        function = handlers[step.method]
    except KeyError as error:
        fault = error.__cause__
        reason = fault.message if isinstance(fault, HandlerFault) else str(error)
        return [ConfigProblem(source=step.place, key=f"{step.key}.method", message=reason)]
    problems: list[ConfigProblem] = []
    key: str | None = None
    try:
        besides = names_in(step.resource_key or "")
        problems += check_params(function, params, (step.key,), trace, besides=besides)
        key = resource_key(step, with_defaults(function, params), lancedb_dir)
    except ValueError as error:
        key_path = f"{step.key}.resource_key"
        problems.append(ConfigProblem(source=step.place, key=key_path, message=str(error)))
    if step.resource_shared and key is None and not problems:
        message = "nothing is shared without a resource_key"
        place = f"{step.key}.resource_shared"
        problems.append(ConfigProblem(source=step.place, key=place, message=message))
    if problems:
        return problems
    return StepPlan(
        name=step.name,
        step_type=step.step_type,
        handler=handlers.canonical(step.method),
        retries=step.retries,
        timeout=step.timeout,
        backoff=step.backoff,
        backoff_cap=step.backoff_cap,
        resource_key=key,
        resource_shared=_is_shared(step, key),
        pool=step.pool,
        when=step.when,
        params=dict(params),
    )


def resource_key(step: StepDefinition, params: Mapping[str, Any], lancedb_dir: str) -> str | None:
    """What the step locks: its template filled in; a step of type store locks its database.

    Raises ValueError for a template that cannot be filled in.
    """
    if step.resource_key is not None:
        return fill_template(step.resource_key, params)
    if step.step_type != "store":
        return None
    # Absolute: processes with other working folders mean the same database.
    folder = os.path.join(lancedb_dir, str(params.get("data_dir", "")))  # noqa: PTH118 - no I/O
    return f"rag:{os.path.abspath(folder)}"  # noqa: PTH100 - links stay as they are named


def _is_shared(step: StepDefinition, key: str | None) -> bool:
    if step.resource_shared is not None:
        return step.resource_shared
    # What one worker writes at the same time to one database becomes one commit of it.
    return key is not None and step.resource_key is None


def names_in(template: str) -> frozenset[str]:
    """The parameters that a template names. Raises ValueError for an invalid template."""
    return frozenset(name for _, name in _pieces(template) if name is not None)


def fill_template(template: str, params: Mapping[str, Any]) -> str:
    """The template with ``{name}`` replaced by parameters; plain names only, ``{{`` for a brace."""
    parts: list[str] = []
    for text, name in _pieces(template):
        parts.append(text)
        if name is None:
            continue
        if name not in params:
            near = get_close_matches(name, params, n=1)
            meant = f" (did you mean {{{near[0]}}}?)" if near else ""
            known = ", ".join(sorted(params)) or "none"
            raise ValueError(f"the step has no parameter {name!r}{meant}; it has {known}")
        parts.append(str(params[name]))
    return "".join(parts)


def _pieces(template: str) -> Iterator[tuple[str, str | None]]:
    try:
        pieces = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r} is no template: {error}") from error
    for text, name, spec, conversion in pieces:
        if name is not None and (not name.isidentifier() or spec or conversion):
            raise ValueError(f"{template!r} may only have plain names in braces: {{data_dir}}")
        yield text, name
