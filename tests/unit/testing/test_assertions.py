import pytest

from lexigram.contracts.core.errors import DomainError, NotFoundError
from lexigram.contracts.core.health import AggregateHealthResult, HealthCheckResult, HealthStatus
from lexigram.contracts.core.result import Err, Ok
from lexigram.testing import (
    assert_degraded,
    assert_err,
    assert_healthy,
    assert_ok,
    assert_unhealthy,
)


def text_of(call, *args):
    with pytest.raises(AssertionError) as caught:
        call(*args)
    return str(caught.value)


def test_assert_ok_returns_the_value():
    assert assert_ok(Ok(7)) == 7
    assert assert_ok(Ok(None)) is None


def test_assert_ok_shows_the_error_and_raises_from_it():
    error = NotFoundError("no order 7", hint="look elsewhere")
    with pytest.raises(AssertionError) as caught:
        assert_ok(Err(error))
    assert str(caught.value) == (
        "expected Ok, got Err: NotFoundError: [LEX_ERR_DOM_002] no order 7\n→ Fix: look elsewhere"
    )
    assert caught.value.__cause__ is error


def test_assert_ok_shows_an_error_that_is_no_exception():
    assert text_of(assert_ok, Err("sold out")) == "expected Ok, got Err: 'sold out'"


def test_assert_err_returns_the_error():
    error = NotFoundError("no order 7")
    assert assert_err(Err(error)) is error
    assert assert_err(Err(error), DomainError) is error
    assert assert_err(Err("sold out"), str) == "sold out"


def test_assert_err_shows_what_it_found():
    assert text_of(assert_err, Ok(7)) == "expected Err, got Ok(7)"
    assert text_of(assert_err, Ok(7), KeyError) == "expected Err of KeyError, got Ok(7)"
    with pytest.raises(AssertionError) as caught:
        assert_err(Err(ValueError("x")), KeyError)
    assert str(caught.value) == "expected Err of KeyError, got Err: ValueError: x"
    assert isinstance(caught.value.__cause__, ValueError)


def test_something_that_is_no_result_is_refused():
    assert text_of(assert_ok, 7) == "expected Ok, got 7, which is no Result"
    assert text_of(assert_err, None) == "expected Err, got None, which is no Result"


def health(**statuses):
    return AggregateHealthResult(
        tuple(HealthCheckResult(name, status) for name, status in statuses.items())
    )


def test_health_assertions_pass_on_their_status():
    assert_healthy(HealthCheckResult("db"))
    assert_healthy(health(db=HealthStatus.HEALTHY))
    assert_degraded(health(db=HealthStatus.HEALTHY, cache=HealthStatus.DEGRADED))
    assert_unhealthy(health(db=HealthStatus.UNHEALTHY, cache=HealthStatus.DEGRADED))


@pytest.mark.parametrize("check", [assert_healthy, assert_degraded, assert_unhealthy])
@pytest.mark.parametrize("status", [HealthStatus.STARTING, HealthStatus.UNKNOWN])
def test_starting_and_unknown_are_none_of_the_three(check, status):
    assert f"but it is {status.value}" in text_of(check, health(db=status))


def test_a_failed_health_assertion_shows_every_component():
    result = AggregateHealthResult(
        (
            HealthCheckResult("database", HealthStatus.UNHEALTHY, "no answer", "refused"),
            HealthCheckResult("cache"),
        )
    )
    assert text_of(assert_healthy, result) == (
        "expected healthy, but it is unhealthy:\n"
        "  unhealthy database: no answer · refused\n"
        "  healthy   cache"
    )
    assert text_of(assert_degraded, AggregateHealthResult()) == (
        "expected degraded, but it is healthy: no components"
    )
    assert text_of(assert_unhealthy, HealthCheckResult("db")) == (
        "expected unhealthy, but it is healthy:\n  healthy   db"
    )
