"""Assertions on results and health that say what they found."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from lexigram.contracts.core.health import AggregateHealthResult, HealthCheckResult, HealthStatus
from lexigram.contracts.core.result import Err, Ok, Result

T = TypeVar("T")
E = TypeVar("E")


def assert_ok(result: Result[T, Any]) -> T:
    """The value of an Ok; fails with the error of an Err, raised from it where it can be."""
    match result:
        case Ok(value):
            return value
        case Err(error):
            raise _build_unexpected_error("Ok", error)
        case _:
            raise AssertionError(f"expected Ok, got {result!r}, which is no Result")


@overload
def assert_err(result: Result[Any, E]) -> E: ...
@overload
def assert_err(result: Result[Any, Any], kind: type[E]) -> E: ...
def assert_err(result: Result[Any, Any], kind: type[Any] = object) -> Any:
    """The error of an Err, which must be of ``kind``; fails with the value of an Ok."""
    wanted = "Err" if kind is object else f"Err of {kind.__name__}"
    match result:
        case Err(error) if isinstance(error, kind):
            return error
        case Err(error):
            raise _build_unexpected_error(wanted, error)
        case Ok():
            raise AssertionError(f"expected {wanted}, got {result!r}")
        case _:
            raise AssertionError(f"expected {wanted}, got {result!r}, which is no Result")


def assert_healthy(health: HealthCheckResult | AggregateHealthResult) -> None:
    """Every component is HEALTHY; fails with a line for each component."""
    _assert_status(health, HealthStatus.HEALTHY)


def assert_degraded(health: HealthCheckResult | AggregateHealthResult) -> None:
    """The whole is DEGRADED: something is impaired, nothing is UNHEALTHY."""
    _assert_status(health, HealthStatus.DEGRADED)


def assert_unhealthy(health: HealthCheckResult | AggregateHealthResult) -> None:
    """At least one component is UNHEALTHY."""
    _assert_status(health, HealthStatus.UNHEALTHY)


def _assert_status(health: HealthCheckResult | AggregateHealthResult, wanted: HealthStatus) -> None:
    if health.status is wanted:
        return
    parts = health.components if isinstance(health, AggregateHealthResult) else (health,)
    lines = "".join(f"\n  {_component(part)}" for part in parts)
    raise AssertionError(
        f"expected {wanted.value}, but it is {health.status.value}:{lines or ' no components'}"
    )


def _component(part: HealthCheckResult) -> str:
    facts = " · ".join(text for text in (part.message, part.error) if text)
    return f"{part.status.value:<9} {part.component}{f': {facts}' if facts else ''}"


def _build_unexpected_error(wanted: str, error: object) -> AssertionError:
    if not isinstance(error, BaseException):
        return AssertionError(f"expected {wanted}, got Err: {error!r}")
    failure = AssertionError(f"expected {wanted}, got Err: {type(error).__name__}: {error}")
    failure.__cause__ = error  # so that its traceback is shown too
    return failure
