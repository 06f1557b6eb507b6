"""Schedules as text and back: equal schedules give equal text, in every process."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

from lexigram.contracts.infra.schedule.errors import InvalidScheduleError
from lexigram.contracts.infra.schedule.types import (
    CallbackTarget,
    JobTarget,
    MessageTarget,
    MisfirePolicy,
    Schedule,
    ScheduleTarget,
)
from lexigram.contracts.workflow.limits import find_unstorable

_TIMES = ("at", "start", "end")
_WHEN = ("cron", "every", "at", "timezone", "start", "end")
_TARGETS: dict[str, type[ScheduleTarget]] = {
    "job": JobTarget,
    "message": MessageTarget,
    "callback": CallbackTarget,
}


def written(schedule: Schedule) -> str:
    """The schedule as JSON; InvalidScheduleError for arguments that are none."""
    data: dict[str, Any] = {
        item.name: getattr(schedule, item.name)
        for item in fields(schedule)
        if item.name not in {"name", "target"}
    }
    for key in _TIMES:
        data[key] = _text(data[key])
    for path, problem, hint, _ in find_unstorable(schedule.target, "target"):
        raise InvalidScheduleError(
            f"schedule {schedule.name!r}: {path[:200]} {problem}",
            details={"schedule": schedule.name, "field": path[:200]},
            hint=hint,
        )
    data["target"] = {"kind": kind_of(schedule.target), **asdict(schedule.target)}
    try:
        return json.dumps(data, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidScheduleError(
            f"schedule {schedule.name!r} has arguments that are not JSON: {error}",
            details={"schedule": schedule.name},
            hint="give texts, numbers, booleans, None, lists and dictionaries; ids instead of objects",
        ) from error


def read(name: str, text: str) -> Schedule:
    """The inverse of ``written``."""
    data = json.loads(text)
    for key in _TIMES:
        data[key] = None if data[key] is None else datetime.fromisoformat(data[key])
    data["misfire"] = MisfirePolicy(data["misfire"])
    target = data.pop("target")
    kind = _TARGETS[target.pop("kind")]
    if kind is JobTarget:
        target["args"] = tuple(target["args"])
    return Schedule(name=name, target=kind(**target), **data)


def same_times(one: Schedule, other: Schedule) -> bool:
    """True when both have the same ticks; jitter may differ."""
    return all(getattr(one, key) == getattr(other, key) for key in _WHEN)


def kind_of(target: ScheduleTarget) -> str:
    """``job``, ``message`` or ``callback``."""
    return next(kind for kind, each in _TARGETS.items() if isinstance(target, each))


def _text(at: datetime | None) -> str | None:
    # In UTC: the same moment written in two zones is the same schedule.
    return None if at is None else at.astimezone(UTC).isoformat()
