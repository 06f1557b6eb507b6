"""What a run consists of: the value that definitions are turned into before they are submitted."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import orjson
from attrs import asdict, field, frozen
from attrs.validators import ge, gt, lt, min_len, optional

from lexigram.workflow.durable.errors import PlanInvalidError
from lexigram.workflow.durable.views import STEP_FACTOR

_TEXT = 255  # characters of a name in the tables
_HANDLERS = 99  # of one event: their numbers have two digits in the view
_CONDITION = re.compile(r"(not +)?([A-Za-z_][A-Za-z0-9_-]*)")


class LifeCycleEvent(StrEnum):
    """What a plan or a listener can hear of; an attempt that is tried again has no end."""

    GROUP_START = "group_start"  # the first step of the group was claimed
    GROUP_END = "group_end"  # its last run is final; again after a retry
    ITEM_START = "item_start"  # the first step of a run was claimed
    ITEM_END = "item_end"  # a run is completed
    ITEM_FAILED = "item_failed"  # a run failed
    STEP_START = "step_start"  # an attempt begins
    STEP_END = "step_end"  # a step is completed
    STEP_FAILED = "step_failed"  # a step failed for good


# What the tables remember: a bit for each event that a plan has handlers for.
EVENT_BITS: Mapping[LifeCycleEvent, int] = {
    event: 1 << number for number, event in enumerate(LifeCycleEvent)
}


@frozen(kw_only=True)
class LifecycleHandler:
    """A function that is called for an event of the plan's runs, until it succeeds once."""

    name: str = field(validator=min_len(1))
    # the name under which workers know the function
    handler: str = field(validator=min_len(1))
    # attempts in all
    retries: int = field(default=1, validator=ge(1))
    # JSON-ready; the handler's ``step_params``
    params: Mapping[str, Any] = field(factory=dict[str, Any])


@frozen
class Condition:
    """``name`` or ``not name``: whether a step is done.

    The name is looked for in the parameters of the run, then in what the steps before returned,
    the latest first. What nobody said is false; else the value's own truth counts.
    """

    name: str
    negated: bool

    @classmethod
    def parsed(cls, text: str) -> Condition | None:
        """None when it is not a condition."""
        match = _CONDITION.fullmatch(text.strip())
        return None if match is None else cls(match[2], match[1] is not None)

    def holds(self, sources: Iterable[Mapping[str, Any]]) -> bool:
        """Look it up; the first source that has the name decides."""
        for source in sources:
            if self.name in source:
                return bool(source[self.name]) is not self.negated
        return self.negated


@frozen(kw_only=True)
class StepPlan:
    """One step: who does it, how often it is tried, what it locks."""

    name: str = field(validator=min_len(1))
    # what it is, and which pool of a worker takes it unless ``pool`` says otherwise
    step_type: str = field(validator=min_len(1))
    # the name under which workers know the function
    handler: str = field(validator=min_len(1))
    # attempts in all: 1 is no second try
    retries: int = field(default=1, validator=ge(1))
    # seconds an attempt may take; None is no limit
    timeout: float | None = field(default=None, validator=optional(gt(0)))
    # seconds before the second attempt; doubles up to the cap
    backoff: float = field(default=0.0, validator=ge(0))
    backoff_cap: float = field(default=300.0, validator=ge(0))
    # steps with the same key never run at the same time, whoever runs them
    resource_key: str | None = None
    # those of one claim of one worker do: they were claimed together, hold the lock together and
    # no further one joins them; nobody else has it until the last of them has ended
    resource_shared: bool = False
    # JSON-ready; the handler's ``step_params``
    params: Mapping[str, Any] = field(factory=dict[str, Any])
    # the pool that takes it; None is that of its type
    pool: str | None = field(default=None, validator=optional(min_len(1)))
    # ``name`` or ``not name``: see Condition; a step whose condition is false is skipped
    when: str | None = None

    @property
    def queue(self) -> str:
        """The pool that takes it."""
        return self.pool or self.step_type


def _by_event(
    given: Mapping[LifeCycleEvent, Sequence[LifecycleHandler]],
) -> Mapping[LifeCycleEvent, Sequence[LifecycleHandler]]:
    """Also by the names that a stored plan has."""
    return {LifeCycleEvent(event): tuple(handlers) for event, handlers in given.items()}


@frozen(kw_only=True)
class RunPlan:
    """Steps in their order. Stored with the runs: a new version does not touch those that run."""

    workflow_id: str = field(validator=min_len(1))
    steps: Sequence[StepPlan]
    param_id: str | None = None
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
                event.value: [asdict(handler) for handler in handlers]
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
    delay: float = field(default=0.0, validator=[ge(0), lt(math.inf)])
    # a second run with the key is not made
    idempotency_key: str | None = None
    # JSON-ready; the handler's ``workflow_run.run_params``
    params: Mapping[str, Any] = field(factory=dict[str, Any])


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


def _problems(plan: RunPlan) -> Sequence[str]:
    found: list[str] = []
    if not plan.steps:
        found.append("it has no steps")
    if len(plan.steps) >= STEP_FACTOR:
        found.append(f"it has {len(plan.steps)} steps, at most {STEP_FACTOR - 1} can be numbered")
    for number, step in enumerate(plan.steps, 1):
        texts = (
            *(("name", step.name), ("step_type", step.step_type)),
            *(("key", step.resource_key), ("pool", step.pool)),
        )
        found += [
            f"step {number}: its {what} is longer than {_TEXT} characters"
            for what, value in texts
            if value is not None and len(value) > _TEXT
        ]
        if step.when is not None and Condition.parsed(step.when) is None:
            found.append(
                f"step {number} ({step.name}): its condition {step.when!r} is neither"
                " `name` nor `not name`"
            )
        try:
            orjson.dumps(step.params)
        except (TypeError, orjson.JSONEncodeError) as error:
            found.append(f"step {number} ({step.name}): its params are not JSON: {error}")
    for event, handlers in plan.lifecycle.items():
        found += _handler_problems(event, handlers)
    return found


def _handler_problems(event: LifeCycleEvent, handlers: Sequence[LifecycleHandler]) -> Sequence[str]:
    found: list[str] = []
    if len(handlers) > _HANDLERS:
        found.append(f"{event} has {len(handlers)} handlers, at most {_HANDLERS} can be numbered")
    for handler in handlers:
        if len(handler.name) > _TEXT:
            found.append(f"{event}: a handler's name is longer than {_TEXT} characters")
        try:
            orjson.dumps(handler.params)
        except (TypeError, orjson.JSONEncodeError) as error:
            found.append(f"{event} ({handler.name}): its params are not JSON: {error}")
    return found
