"""Turn what is given to ``enqueue`` into a job that any store can keep, or say what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

from attrs import frozen

from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.infra.tasks.errors import JobRefusedError
from lexigram.contracts.infra.tasks.protocols import JobProtocol
from lexigram.contracts.infra.tasks.types import DependencyPolicy, Job
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.serialization import dumps, loads
from lexigram.sql.text import is_storable
from lexigram.tasks._records import DEFAULTS, job_of, new_id
from lexigram.tasks.context import ambient_job

# Written by the queue; ignored in a Job, refused in a mapping.
_QUEUES_OWN = frozenset(
    {
        *("status", "created_at", "started_at", "completed_at", "retry_count", "lost_count"),
        *("last_error", "reason", "cancel_requested"),
    }
)
_CALLERS = frozenset(item.name for item in fields(Job)) - _QUEUES_OWN
_MAPPING_KEYS = _CALLERS | {"delay"}

# Texts that are keys of an index: PostgreSQL refuses index rows beyond 2,700 bytes.
_LONGEST_KEY = 512
_A_TEXT = f"one line of 1 to {_LONGEST_KEY} characters"
_LEAST_PRIORITY = -(2**31)
_LONGEST_SECONDS = timedelta(days=36525).total_seconds()
_MOST = 2**63 - 1


@frozen(kw_only=True)
class NewJob:
    """A checked job on its way into a store."""

    job: Job
    # args, kwargs and trace context as JSON; empty when there are none
    payload: str
    # seconds from the store's own now
    delay: float = 0.0


def admitted(
    task: JobProtocol | Mapping[str, Any],
    declared: Callable[[str], Mapping[str, Any]] | None = None,
    tracer: TracerProtocol | None = None,
) -> NewJob:
    """The job, checked; JobRefusedError names what is wrong.

    ``declared`` says what the handler of a name declares for keys that a mapping leaves out;
    ``tracer`` tells the span that enqueues it.
    """
    if isinstance(task, Mapping):
        return _from_mapping(task, declared, tracer)
    if isinstance(task, Job):
        return _check_job(task, 0.0, tracer)
    if isinstance(task, JobProtocol):
        known = {name: getattr(task, name) for name in _CALLERS if hasattr(task, name)}
        return _check_job(Job(**known), 0.0, tracer)
    raise JobRefusedError(
        f"a {type(task).__name__} is no job",
        hint='give a mapping such as {"name": "send_mail", "kwargs": {...}}, or a Job',
    )


def payload_of(
    payload: str,
) -> tuple[tuple[Any, ...], dict[str, Any], Mapping[str, str] | None]:
    """What ``NewJob.payload`` holds: args, kwargs, trace context."""
    if not payload:
        return (), {}, None
    # As anything, which is the short way of the codec: 3 µs, as a dict of anything it took 25.
    data: Any = loads(payload.encode(), Any)
    return tuple(data["args"]), data["kwargs"], data.get("trace")


def result_text(value: Any) -> str | None:
    """A result as JSON; None is kept as nothing."""
    return None if value is None else dumps(value).decode()


def result_value(text: str | None) -> Any:
    """The result behind ``result_text``."""
    return None if text is None else loads(text.encode(), object)


def as_mapping(job: Job) -> dict[str, Any]:
    """What a caller decided about the job, as ``enqueue`` takes it: payload of a dead letter."""
    default = Job(name="", id="")
    declared_values = {name: getattr(job, name) for name in sorted(_CALLERS)}
    return {
        name: value
        for name, value in declared_values.items()
        if name in ("id", "name", "args", "kwargs", "queue") or value != getattr(default, name)
    }


def _from_mapping(
    task: Mapping[str, Any],
    declared: Callable[[str], Mapping[str, Any]] | None,
    tracer: TracerProtocol | None,
) -> NewJob:
    if not task.keys() <= _MAPPING_KEYS:
        unknown = [str(key) for key in task if key not in _MAPPING_KEYS]
        raise JobRefusedError(
            f"a job has no {', '.join(sorted(unknown))}",
            details={"unknown": sorted(unknown)},
            hint=f"keys are {', '.join(sorted(_MAPPING_KEYS))}",
        )
    if "name" not in task:
        raise JobRefusedError("a job needs a name", hint='{"name": "send_mail", ...}')
    declared_values = {} if declared is None else declared(task["name"])
    given = {**DEFAULTS, "id": new_id(), "kwargs": {}, **declared_values, **task}
    delay = given.pop("delay", 0.0)
    for key in ("args", "depends_on"):
        if given[key].__class__ is not tuple:
            given[key] = _read_list(key, given[key])
    return _check_job(job_of(given), delay, tracer)


def _read_list(key: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise JobRefusedError(f"{key} of a job is a list, not {value!r}")
    return tuple(value)


def _check_job(job: Job, delay: Any, tracer: TracerProtocol | None) -> NewJob:
    for key, text in (("name", job.name), ("id", job.id), ("queue", job.queue)):
        _check(_is_text(text), job, key, _A_TEXT)
    for key in ("unique_key", "idempotency_key", "correlation_id", "causation_id"):
        text = getattr(job, key)
        if text is not None:
            _check(_is_text(text), job, key, f"nothing, or {_A_TEXT}")
    _check(_is_count(job.priority, _LEAST_PRIORITY), job, "priority", "a whole number")
    _check(_is_count(job.max_retries, 0), job, "max_retries", "0 or more")
    _check(_is_count(job.max_deliveries, 1), job, "max_deliveries", "1 or more")
    for key, span in (("timeout", job.timeout), ("result_ttl", job.result_ttl)):
        if span is not None:
            _check(_is_seconds(span, above=0), job, key, "seconds above 0, or None")
    if delay.__class__ is not float or delay:
        _check_delay(job, delay)
    if job.scheduled_at is not None:
        _check(_is_moment(job.scheduled_at), job, "scheduled_at", "a moment with a time zone")
    if job.kwargs.__class__ is not dict:
        _check(isinstance(job.kwargs, Mapping), job, "kwargs", "a mapping")
    if job.depends_on or job.on_dependency_failure is not DependencyPolicy.CANCEL:
        job = _with_dependencies(job)
    job = _with_causes(job)
    if job.trace_context is not None:
        _check(_is_headers(job.trace_context), job, "trace_context", "headers, or None")
    elif tracer is not None:
        job = _with_trace(job, tracer)
    return NewJob(job=job, payload=_payload(job), delay=float(delay))


def _check_delay(job: Job, delay: Any) -> None:
    if not _is_seconds(delay, above=-1) or delay < 0:
        raise JobRefusedError(f"delay of a job is seconds, 0 or more, not {delay!r}")
    if delay and job.scheduled_at is not None:
        raise JobRefusedError("a job has a delay or a scheduled_at, not both")


def _with_dependencies(job: Job) -> Job:
    _check(all(map(_is_text, job.depends_on)), job, "depends_on", "a list of job ids")
    if job.id in job.depends_on:
        raise JobRefusedError(f"job {job.id!r} depends on itself")
    known = {policy.value for policy in DependencyPolicy}
    _check(job.on_dependency_failure in known, job, "on_dependency_failure", "cancel or run")
    return replace(
        job,
        on_dependency_failure=DependencyPolicy(job.on_dependency_failure),
        depends_on=tuple(dict.fromkeys(job.depends_on)),
    )


def _with_causes(job: Job) -> Job:
    """A job enqueued by the handler of another one belongs to the same story."""
    context = ambient_job()
    if context is None or job.causation_id is not None:
        return job
    parent = context.job
    return replace(
        job,
        causation_id=parent.id,
        correlation_id=job.correlation_id or parent.correlation_id or parent.id,
    )


def _with_trace(job: Job, tracer: TracerProtocol) -> Job:
    headers: dict[str, str] = {}
    tracer.inject_context(headers)
    return replace(job, trace_context=headers) if headers else job


def _payload(job: Job) -> str:
    if not job.args and not job.kwargs and not job.trace_context:
        return ""
    kept: dict[str, Any] = {"args": list(job.args), "kwargs": dict(job.kwargs)}
    if job.trace_context:
        kept["trace"] = dict(job.trace_context)
    try:
        text = dumps(kept).decode()
    except LexigramError as error:
        raise JobRefusedError(
            f"the arguments of job {job.name!r} cannot be kept: {error.message}",
            details={"name": job.name},
            hint=error.hint,
        ) from error
    if "\\u0000" in text:
        raise JobRefusedError(
            f"the arguments of job {job.name!r} hold a NUL character",
            hint="send bytes, which travel as base64, or remove it",
        )
    return text


def check_keys(**texts: Any) -> None:
    """Refuse what no job can be found by; those that are None are not asked for."""
    for field, text in texts.items():
        if text is not None and not _is_text(text):
            raise JobRefusedError(
                f"{field} {_show(text)} is not {_A_TEXT}",
                details={"field": field},
                hint="give the text that the job was enqueued with",
            )


def check_page(limit: Any, offset: Any) -> None:
    """Refuse a part of a list that no store can read."""
    for field, number, least in (("limit", limit, 1), ("offset", offset, 0)):
        if type(number) is not int or not least <= number <= _MOST:
            raise JobRefusedError(
                f"{field} {_show(number)} is not a whole number from {least} to {_MOST}",
                details={"field": field},
                hint="count from 0, and read the rest with another offset",
            )


def check_age(field: str, seconds: Any) -> None:
    """Refuse an age that is no number of seconds; below 0 is whatever ended."""
    if not _is_seconds(seconds, above=-_LONGEST_SECONDS):
        raise JobRefusedError(
            f"{field} {_show(seconds)} is not a finite number of seconds",
            details={"field": field},
            hint="give seconds, at most 100 years",
        )


def _show(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 256:
        return f"({value.bit_length()} bits)"  # Python refuses to write very long numbers
    return ascii(value)[:80]


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_KEY:
        return False
    return "\n" not in value and is_storable(value)


def _is_headers(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(text, str) for item in value.items() for text in item)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**31


def _is_seconds(value: Any, *, above: float) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and above < value < _LONGEST_SECONDS
    )


def _is_moment(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _check(holds: bool, job: Job, key: str, wanted: str) -> None:
    if not holds:
        value = getattr(job, key)
        raise JobRefusedError(
            f"{key} of a job is {wanted}, not {_show(value)}",
            details={"field": key, "job": job.name},
        )
