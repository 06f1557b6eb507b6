"""What a schedule may hold, and what it may be looked up by."""

import math

import pytest

from lexigram.contracts.infra.schedule.errors import InvalidScheduleError
from lexigram.contracts.infra.schedule.types import CallbackTarget, JobTarget, Schedule
from lexigram.schedule import Scheduler
from lexigram.schedule.definition import written
from lexigram.sql import Database

pytestmark = pytest.mark.anyio


def schedule(**options):
    return Schedule(**{"name": "s", "target": CallbackTarget(name="c"), "every": 60.0, **options})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("name", text) for text in ("a\0", "\ud800", "x" * 201, "")],
        *[("description", text) for text in ("a\0", "\ud800", "x" * 10_001)],
        *[("every", number) for number in (1e300, math.inf, math.nan, 2**200)],
        *[("jitter", number) for number in (1e300, math.inf, math.nan)],
        *[("grace", number) for number in (1e300, math.inf, math.nan)],
    ],
)
def test_a_schedule_out_of_bounds_is_refused_by_name(field, value):
    with pytest.raises(InvalidScheduleError, match=field if field != "every" else "every="):
        schedule(**{field: value})


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, r"target\.kwargs\['a'\]\[0\]"),
        ({1}, r"target\.kwargs\['a'\]\[0\]"),
        (b"x", r"target\.kwargs\['a'\]\[0\]"),
        ({1: 2}, r"target\.kwargs\['a'\]\[0\]"),
        ("\ud800", r"target\.kwargs\['a'\]\[0\]"),
        (2**70, r"target\.kwargs\['a'\]\[0\]"),
    ],
)
def test_an_argument_that_json_cannot_hold_is_refused_with_its_path(value, path):
    target = JobTarget(name="j", kwargs={"a": [value]})
    with pytest.raises(InvalidScheduleError, match=path):
        written(schedule(target=target))


async def test_a_name_or_number_that_no_database_takes_is_refused(sqlite_url):
    async with Database(sqlite_url) as database:
        scheduler = Scheduler(database)
        for call in (scheduler.get, scheduler.pause, scheduler.resume, scheduler.delete):
            for name in ("a\0", "\ud800", "x" * 201, ""):
                with pytest.raises(InvalidScheduleError, match="is no name"):
                    await call(name)
        for number in (2**63, -1, 1.5):
            with pytest.raises(InvalidScheduleError, match="limit"):
                await scheduler.firings("s", number)
