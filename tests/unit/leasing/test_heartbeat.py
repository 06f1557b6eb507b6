"""A lease is renewed while work goes on, and known to be lost in time."""

import anyio
import anyio.lowlevel
import pytest

from lexigram.leasing import renew_until_lost

pytestmark = pytest.mark.anyio

LEASE = 0.05
GUARD = 30.0


def raise_it(error):
    raise error


async def test_a_lease_is_renewed_until_somebody_else_has_it():
    answers = [True, True, False]
    with anyio.fail_after(GUARD):
        await renew_until_lost(lambda: answer(answers.pop(0)), LEASE, raise_it)
    assert answers == []


async def test_an_error_is_reported_and_the_lease_outlives_it(monkeypatch):
    monkeypatch.setattr("anyio.sleep", lambda _: anyio.lowlevel.checkpoint())
    answers, errors = [ValueError("away"), True, False], []
    await renew_until_lost(lambda: answer(answers.pop(0)), GUARD, errors.append)
    assert [str(error) for error in errors] == ["away"]
    assert answers == []


async def test_a_lease_that_could_not_be_renewed_for_its_length_is_lost():
    errors = []
    with anyio.fail_after(GUARD):
        await renew_until_lost(lambda: answer(ValueError("away")), LEASE, errors.append)
    assert errors


async def test_an_error_that_ends_the_work_passes():
    with pytest.raises(ValueError, match="gone"):
        await renew_until_lost(lambda: answer(ValueError("gone")), LEASE, raise_it)


async def answer(given):
    if isinstance(given, Exception):
        raise given
    return given
