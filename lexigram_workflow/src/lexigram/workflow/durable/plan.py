"""What a run consists of: the plan that definitions are turned into, new runs, and their values.

Users give values to runs and get values back from them, as JSON that is the same after reading.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import orjson
from attrs import Attribute, asdict, field, frozen
from attrs.validators import optional

from lexigram.contracts.workflow.errors import InvalidRunError
from lexigram.contracts.workflow.limits import (
    MAX_TEXT_LENGTH,
    MAX_VALUE_BYTES,
    check_name,
    check_optional_ids,
    check_optional_names,
    check_priority,
    check_retries,
    check_seconds,
    check_text,
    check_timeout,
    check_value,
)
from lexigram.sql.text import storable_text
from lexigram.workflow.durable.errors import PlanInvalidError
from lexigram.workflow.durable.store.views import STEP_FACTOR

_HANDLERS = 99  # of one event: their numbers have two digits in the view
# What handlers of graphs, pipelines and sagas begin with; their steps name what they belong to.
ORCHESTRATED = "orchestrated."
_CONDITION = re.compile(r"(not +)?([A-Za-z_][A-Za-z0-9_-]*)")


def validate_with(
    check: Callable[[str, object], None],
) -> Callable[[Any, Attribute[Any], Any], None]:
    """A validator of attrs that is a check of ``lexigram.contracts.workflow.limits``."""
    return lambda _, attribute, value: check(attribute.name, value)


class LifeCycleEvent(StrEnum):
    """The events for plans and listeners; an attempt that is retried has no end event."""

    GROUP_START = "group_start"  # the first step of the group was claimed
    GROUP_END = "group_end"  # its last run is final; again after a retry
    ITEM_START = "item_start"  # the first step of a run was claimed
    ITEM_END = "item_end"  # a run is completed
    ITEM_FAILED = "item_failed"  # a run failed
    STEP_START = "step_start"  # an attempt begins
    STEP_END = "step_end"  # a step is completed
    STEP_FAILED = "step_failed"  # a step failed permanently


# What the tables remember: a bit for each event that a plan has handlers for.
EVENT_BITS: Mapping[LifeCycleEvent, int] = {
    event: 1 << number for number, event in enumerate(LifeCycleEvent)
}


def _check_handler(field: str, name: object) -> None:
    """A dotted path may be longer than a name."""
    check_text(field, name)
    if name == "":
        check_name(field, name)


@frozen(kw_only=True)
class LifecycleHandler:
    """A function that is called for an event of the plan's runs, until it succeeds once."""

    name: str = field(validator=validate_with(check_name))
    # the name of the function in the handlers of workers
    handler: str = field(validator=validate_with(_check_handler))
    # attempts in all
    retries: int = field(default=1, validator=validate_with(check_retries))
    # seconds an attempt may take; None is no limit
    timeout: float | None = field(default=None, validator=optional(validate_with(check_timeout)))
    # JSON-ready; the handler's ``step_params``
    params: Mapping[str, Any] = field(factory=dict[str, Any])


@frozen
class Condition:
    """``name`` or ``not name``: whether a step is done.

    The name is looked for in the parameters of the run, then in what the steps before returned,
    the latest first. A missing name is false; else the truth value of the value counts.
    """

    name: str
    negated: bool

    @classmethod
    def parse(cls, text: str) -> Condition | None:
        """None when it is not a condition."""
        match = _CONDITION.fullmatch(text.strip())
        return None if match is None else cls(match[2], match[1] is not None)

    def holds(self, sources: Iterable[Mapping[str, Any]]) -> bool:
        """Evaluate the condition; the first source that has the name decides."""
        for source in sources:
            if self.name in source:
                return bool(source[self.name]) is not self.negated
        return self.negated


@frozen(kw_only=True)
class StepPlan:
    """One step: who does it, how often it is tried, what it locks."""

    name: str = field(validator=validate_with(check_name))
    # what it is, and which pool of a worker takes it unless ``pool`` says otherwise
    step_type: str = field(validator=validate_with(check_name))
    # the name of the function in the handlers of workers
    handler: str = field(validator=validate_with(_check_handler))
    # attempts in all: 1 is no second try
    retries: int = field(default=1, validator=validate_with(check_retries))
    # seconds an attempt may take; None is no limit
    timeout: float | None = field(default=None, validator=optional(validate_with(check_timeout)))
    # seconds before the second attempt; doubles up to the cap
    backoff: float = field(default=0.0, validator=validate_with(check_seconds))
    backoff_cap: float = field(default=300.0, validator=validate_with(check_seconds))
    # steps with the same key never run at the same time, in any process
    resource_key: str | None = field(default=None, validator=optional(validate_with(check_name)))
    # the steps of one claim of one worker do: they were claimed together, hold the lock together
    # and no further one joins them; no other claim gets it until the last of them has ended
    resource_shared: bool = False
    # JSON-ready; the handler's ``step_params``
    params: Mapping[str, Any] = field(factory=dict[str, Any])
    # the pool that takes it; None is that of its type
    pool: str | None = field(default=None, validator=optional(validate_with(check_name)))
    # ``name`` or ``not name``: see Condition; a step whose condition is false is skipped
    when: str | None = None

    @property
    def queue(self) -> str:
        """The pool that takes it."""
        return self.pool or self.step_type

    @property
    def requires(self) -> str:
        """What a worker must have to claim it: the handler, and the graph it is of, if any."""
        if not self.handler.startswith(ORCHESTRATED) or "orchestration" not in self.params:
            return self.handler
        return f"{self.handler}:{self.params['orchestration']}"


def _by_event(
    given: Mapping[LifeCycleEvent, Sequence[LifecycleHandler]],
) -> Mapping[LifeCycleEvent, Sequence[LifecycleHandler]]:
    """Also by the names that a stored plan has."""
    return {LifeCycleEvent(event): tuple(handlers) for event, handlers in given.items()}


@frozen(kw_only=True)
class RunPlan:
    """Steps in their order. Stored with the runs: a new version does not touch those that run."""

    workflow_id: str = field(validator=validate_with(check_name))
    steps: Sequence[StepPlan]
    param_id: str | None = field(default=None, validator=optional(validate_with(check_name)))
    # called for events of these runs; their order is kept
    lifecycle: Mapping[LifeCycleEvent, Sequence[LifecycleHandler]] = field(
        factory=dict[LifeCycleEvent, Sequence[LifecycleHandler]],
        converter=_by_event,
    )

    def __attrs_post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise PlanInvalidError(
                f"the plan of {self.workflow_id!r} cannot be run: {'; '.join(problems)}",
                details={"workflow_id": self.workflow_id, "problems": problems},
            )

    @property
    def body(self) -> str:
        """JSON in which equal plans are equal."""
        plan: dict[str, Any] = {
            "workflow_id": self.workflow_id,
            "param_id": self.param_id,
            "steps": [_step_body(step) for step in self.steps],
        }
        if self.lifecycle:
            plan["lifecycle"] = {
                event.value: [_handler_body(handler) for handler in handlers]
                for event, handlers in self.lifecycle.items()
            }
        return orjson.dumps(plan, option=orjson.OPT_SORT_KEYS).decode()

    @property
    def digest(self) -> str:
        """What names the content."""
        return hashlib.sha256(self.body.encode()).hexdigest()

    @classmethod
    def from_body(cls, body: str) -> RunPlan:
        """The plan that was stored."""
        data = orjson.loads(body)
        steps = [StepPlan(**step) for step in data["steps"]]
        lifecycle = {
            LifeCycleEvent(event): [LifecycleHandler(**handler) for handler in handlers]
            for event, handlers in data.get("lifecycle", {}).items()
        }
        return cls(
            workflow_id=data["workflow_id"],
            param_id=data["param_id"],
            steps=steps,
            lifecycle=lifecycle,
        )

    @property
    def events(self) -> int:
        """The bits of the events that have handlers."""
        return sum(EVENT_BITS[event] for event, handlers in self.lifecycle.items() if handlers)

    def number(self, name: str) -> int | None:
        """The number of the step with this name, from 1; the first of several."""
        names = (number for number, step in enumerate(self.steps, 1) if step.name == name)
        return next(names, None)

    def part(self, names: Sequence[str]) -> RunPlan:
        """A plan of some of these steps, in the order given, without lifecycle handlers."""
        numbers = [self.number(name) for name in names]
        unknown = [name for name, number in zip(names, numbers, strict=True) if number is None]
        if unknown:
            raise PlanInvalidError(
                f"the plan of {self.workflow_id!r} has no steps {unknown}",
                details={"workflow_id": self.workflow_id, "unknown": unknown},
                hint=f"its steps are {[step.name for step in self.steps]}",
            )
        steps = [self.steps[number - 1] for number in numbers if number is not None]
        return RunPlan(workflow_id=self.workflow_id, param_id=self.param_id, steps=steps)


@frozen(kw_only=True)
class NewRun:
    """One run to submit."""

    doc_id: str | None = None
    batch_id: int | None = None
    # more is sooner; a point is worth the engine's ``ageing`` seconds of waiting
    priority: int = 0
    # runs of a tenant that submits many stand in line with those of the others
    tenant: str | None = None
    # seconds before the first step can start
    delay: float = 0.0
    # a second run with the key is not made
    idempotency_key: str | None = None
    # JSON-ready; the handler's ``workflow_run.run_params``
    params: Mapping[str, Any] = field(factory=dict[str, Any])

    def __attrs_post_init__(self) -> None:
        check_seconds("delay", self.delay)
        check_priority("priority", self.priority)
        check_optional_ids(batch_id=self.batch_id)
        check_optional_names(
            doc_id=self.doc_id, tenant=self.tenant, idempotency_key=self.idempotency_key
        )


def list_lifecycle_handlers(body: str, event: str) -> Sequence[str]:
    """The handlers of an event in a stored plan, also in one that a later version stored."""
    handlers = orjson.loads(body).get("lifecycle", {}).get(event, ())
    return [handler["handler"] for handler in handlers]


def json_text(field: str, value: Any) -> str:
    """The value as JSON. InvalidRunError names the path of what JSON cannot hold."""
    try:
        data = orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        check_value(field, value)
        raise InvalidRunError(
            f"{field} cannot be written as JSON: {error}", details={"field": field}
        ) from error
    if b"null" in data:  # None; or NaN and infinity, which orjson writes like None
        check_value(field, value)
    if len(data) > MAX_VALUE_BYTES:
        raise InvalidRunError(
            f"{field} has {len(data)} bytes as JSON and may have {MAX_VALUE_BYTES}",
            details={"field": field},
            hint="write large values to an artifact",
        )
    return data.decode()


def error_text(error: Exception) -> str:
    """An error as it is stored and shown."""
    return storable_text(f"{type(error).__name__}: {error}"[:MAX_TEXT_LENGTH])


def _step_body(step: StepPlan) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": step.name,
        "step_type": step.step_type,
        "handler": step.handler,
        "retries": step.retries,
        "timeout": step.timeout,
        "backoff": step.backoff,
        "backoff_cap": step.backoff_cap,
        "resource_key": step.resource_key,
        "params": step.params,
    }
    # Left out when not used: plans without them keep their digest, older workers can read them.
    if step.pool is not None:
        body["pool"] = step.pool
    if step.when is not None:
        body["when"] = step.when
    if step.resource_shared:
        body["resource_shared"] = True
    return body


def _handler_body(handler: LifecycleHandler) -> dict[str, Any]:
    body = asdict(handler)
    if handler.timeout is None:  # left out when not used, as in steps
        del body["timeout"]
    return body


def _problems(plan: RunPlan) -> Sequence[str]:
    found: list[str] = []
    if not plan.steps:
        found.append("it has no steps")
    if len(plan.steps) >= STEP_FACTOR:
        found.append(f"it has {len(plan.steps)} steps, at most {STEP_FACTOR - 1} can be numbered")
    for number, step in enumerate(plan.steps, 1):
        problems = _step_problems(step)
        found += [f"step {number} ({step.name}): {problem}" for problem in problems]
    for event, handlers in plan.lifecycle.items():
        found += _handler_problems(event, handlers)
    return found


def _step_problems(step: StepPlan) -> Sequence[str]:
    found: list[str] = []
    if step.when is not None and Condition.parse(step.when) is None:
        found.append(f"its condition {step.when!r} is neither `name` nor `not name`")
    found += _value_problems(step.params)
    return found


def _value_problems(params: Mapping[str, Any]) -> Sequence[str]:
    try:
        json_text("params", params)
    except InvalidRunError as error:
        return [f"{error.message} ({error.hint})" if error.hint else error.message]
    return []


def _handler_problems(event: LifeCycleEvent, handlers: Sequence[LifecycleHandler]) -> Sequence[str]:
    found: list[str] = []
    if len(handlers) > _HANDLERS:
        found.append(f"{event} has {len(handlers)} handlers, at most {_HANDLERS} can be numbered")
    for handler in handlers:
        problems = _value_problems(handler.params)
        found += [f"{event} ({handler.name}): {problem}" for problem in problems]
    return found
