"""Cron expressions: their moments over changes of the clock, and their errors."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.schedule import CronExpressionError, UnknownTimezoneError
from lexigram.schedule.cron import Cron
from lexigram.schedule.zones import zone

BERLIN = zone("Europe/Berlin")
# Ordinary ones, half hours, changes at midnight, on both halves of the earth.
ZONES = [
    *("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"),
    *("America/Santiago", "Asia/Beirut", "Africa/Casablanca", "Pacific/Apia"),
]


def moments(expression, where, after, count):
    cron = Cron.parsed(expression, where)
    found = []
    for _ in range(count):
        after = cron.next(after)
        found.append(after)
    return found


def local(expression, where, after, count):
    return [
        at.astimezone(where).strftime("%m-%d %H:%M %z")
        for at in moments(expression, where, after, count)
    ]


def test_a_time_of_day_in_the_gap_of_spring_fires_once_when_the_gap_ends():
    assert local("30 2 * * *", BERLIN, datetime(2026, 3, 28, 12, tzinfo=UTC), 2) == [
        "03-29 03:00 +0200",
        "03-30 02:30 +0200",
    ]


def test_a_time_of_day_that_comes_twice_in_autumn_fires_the_first_time_only():
    assert local("30 2 * * *", BERLIN, datetime(2026, 10, 24, 12, tzinfo=UTC), 2) == [
        "10-25 02:30 +0200",
        "10-26 02:30 +0100",
    ]


def test_seconds_do_not_change_what_a_time_of_day_does():
    for day in (datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)):
        five = moments("30 2 * * *", BERLIN, day, 3)
        assert moments("0 30 2 * * *", BERLIN, day, 3) == five


def test_what_repeats_fires_in_both_equal_hours_and_not_in_the_missing_one():
    assert local("*/30 * * * *", BERLIN, datetime(2026, 10, 24, 23, 45, tzinfo=UTC), 5) == [
        "10-25 02:00 +0200",
        "10-25 02:30 +0200",
        "10-25 02:00 +0100",
        "10-25 02:30 +0100",
        "10-25 03:00 +0100",
    ]
    assert local("*/30 * * * *", BERLIN, datetime(2026, 3, 29, 0, 15, tzinfo=UTC), 3) == [
        "03-29 01:30 +0100",
        "03-29 03:00 +0200",
        "03-29 03:30 +0200",
    ]


FIELD = st.sampled_from(
    ["*", "*/7", "*/15", "0", "30", "0,30", "5-50/15", "10", "59"],
)
HOUR = st.sampled_from(["*", "*/2", "0", "2", "1-3", "0,2,23", "3"])
DAY = st.sampled_from(["*", "1", "15", "L", "*/2", "29"])
WEEKDAY = st.sampled_from(["*", "SUN", "1-5", "0L"])
EXPRESSION = st.builds("{} {} {} * {}".format, FIELD, HOUR, DAY, WEEKDAY)
MOMENT = st.builds(
    lambda day, second: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day, seconds=second),
    st.integers(0, 2 * 365),
    st.integers(0, 24 * 3600),
)


@given(expression=EXPRESSION, where=st.sampled_from(ZONES), after=MOMENT)
def test_ticks_strictly_grow_and_lie_after_what_was_asked(expression, where, after):
    ticks = moments(expression, zone(where), after, 4)
    assert ticks[0] > after
    assert all(one < other for one, other in pairwise(ticks))


@given(expression=EXPRESSION, where=st.sampled_from(ZONES), after=MOMENT, part=st.floats(0, 1))
def test_the_next_tick_is_the_same_wherever_one_begins_to_look(expression, where, after, part):
    first, second = moments(expression, zone(where), after, 2)
    between = first + (second - first) * part
    if between < second:
        assert moments(expression, zone(where), between, 1) == [second]


@given(where=st.sampled_from(ZONES), after=MOMENT, minutes=st.sampled_from([5, 15, 20, 30]))
def test_what_repeats_fires_exactly_at_the_matching_wall_times(where, after, minutes):
    after = after.replace(second=0)
    ticks = set(moments(f"*/{minutes} * * * *", zone(where), after, 12))
    minute = after
    while minute < max(ticks):
        minute += timedelta(minutes=1)
        matches = minute.astimezone(zone(where)).minute % minutes == 0
        assert (minute in ticks) == matches


@pytest.mark.parametrize(
    "change", [datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)]
)
@pytest.mark.parametrize("expression", ["30 2 * * *", "0 3 * * *", "15 1 * * *", "0 0 * * *"])
def test_a_time_of_day_fires_once_on_every_local_day(expression, change):
    days = [
        at.astimezone(BERLIN).date()
        for at in moments(expression, BERLIN, change - timedelta(days=3), 6)
    ]
    assert len(set(days)) == 6
    assert (days[-1] - days[0]).days == 5


@pytest.mark.parametrize(
    ("expression", "field", "text", "fix"),
    [
        ("61 * * * *", "minute", "out of range: 61", "within 0-59"),
        ("* 24 * * *", "hour", "out of range: 24", "within 0-23"),
        ("* * 0 * *", "day of month", "out of range: 0", "1-31"),
        ("* * * 13 *", "month", "out of range: 13", "JAN-DEC"),
        ("* * * * MOO", "day of week", "unknown name MOO", "MON"),
        ("*/0 * * * *", "minute", "step '0'", "*/5"),
        ("0 22-6 * * *", "hour", "runs backwards", "22-23,0-6"),
        ("61 0 0 * * *", "second", "out of range: 61", "within 0-59"),
        ("x * * * *", "minute", "not understood", "0-59"),
        ("* * *", None, "3 fields", "five fields"),
        ("", None, "0 fields", "five fields"),
        ("0 0 31 2 *", None, "no month has such a day", "a day that some month has"),
        ("@dayly", None, "unknown shorthand", "@daily"),
    ],
)
def test_a_wrong_expression_is_refused_with_the_field_and_a_fix(expression, field, text, fix):
    with pytest.raises(CronExpressionError) as caught:
        Cron.parsed(expression, BERLIN)
    assert caught.value.details == {"cron": expression, "field": field}
    assert text in caught.value.message
    assert fix in caught.value.hint


@given(text=st.text(max_size=30))
def test_no_text_makes_the_parser_fail_in_another_way(text):
    with suppress(CronExpressionError):
        assert Cron.parsed(text, BERLIN).next(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("name", "guess"),
    [("Europe/Berln", "Europe/Berlin"), ("europe/berlin", "Europe/Berlin"), ("berlin", "Berlin")],
)
def test_an_unknown_zone_is_refused_with_the_nearest_one(name, guess):
    with pytest.raises(UnknownTimezoneError) as caught:
        zone(name)
    assert f"did you mean {guess}" in caught.value.hint or guess in caught.value.hint


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "", "\0", "Mars/Phobos"])
def test_a_zone_that_is_none_is_refused_by_name(name):
    with pytest.raises(UnknownTimezoneError, match="there is no time zone"):
        zone(name)


def test_shorthands_mean_their_expressions():
    after = datetime(2026, 5, 5, 5, 5, tzinfo=UTC)
    for short, long in (
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
    ):
        assert moments(short, BERLIN, after, 3) == moments(long, BERLIN, after, 3)
