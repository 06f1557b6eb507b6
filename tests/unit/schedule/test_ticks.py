"""Ticks, jitter and misfires: pure decisions, the same in every process."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.schedule import InvalidScheduleError, JobTarget, MisfirePolicy, Schedule
from lexigram.schedule.definition import read, written
from lexigram.schedule.ticks import COUNTED, Calendar, millis, moment

NOON = millis(datetime(2026, 1, 1, 12, tzinfo=UTC))
SECOND = 1000
JOB = JobTarget(name="work")


def calendar(**settings):
    return Calendar.of(Schedule(name="s", target=JOB, **settings))


SCHEDULES = st.one_of(
    st.builds(
        lambda every, jitter: {"every": every / 10, "jitter": jitter * every / 10},
        st.integers(1, 100_000),
        st.floats(0, 0.99),
    ),
    st.builds(
        lambda cron, timezone: {"cron": cron, "timezone": timezone},
        st.sampled_from(["* * * * *", "*/7 * * * * *", "30 2 * * *", "0 0 1 * *"]),
        st.sampled_from(["UTC", "Europe/Berlin", "America/Santiago"]),
    ),
)


@given(settings=SCHEDULES, after=st.integers(0, 2**41))
def test_ticks_strictly_grow_and_lie_after_what_was_asked(settings, after):
    made = calendar(**settings)
    ticks = [tick for tick, _ in zip(made.walk(after), range(5), strict=False)]
    assert ticks == sorted(set(ticks))
    assert ticks[0] > after


@given(
    settings=SCHEDULES,
    late=st.integers(0, 10**9),
    grace=st.sampled_from([0.0, 1.0, 60.0, 3600.0]),
    misfire=st.sampled_from(MisfirePolicy),
    catch_up=st.integers(1, 20),
)
def test_no_decision_fires_a_tick_twice_or_loses_one_without_saying_so(
    settings, late, grace, misfire, catch_up
):
    made = calendar(**settings, grace=grace, misfire=misfire, catch_up=catch_up)
    first = made.next(NOON)
    now = first + late
    seen, missed, tick = [], [], first
    for _ in range(8):
        decision = made.decide(tick, now, 5)
        seen += decision.fire
        if decision.missed:
            missed.append(decision.missed)
        assert decision.next_tick > tick or not (decision.fire or decision.missed)
        tick = decision.next_tick
        if decision.due > now:
            break
    assert seen == sorted(set(seen))
    assert all(made.due(each) <= now for each in seen)
    # What is neither fired nor counted as missed is still to come.
    handled = sum(
        1 for each, _ in zip(made.walk(first - 1), range(COUNTED), strict=False) if each < tick
    )
    counted = sum(count for _, _, count in missed)
    if handled < COUNTED and counted < COUNTED:
        assert len(seen) + counted == handled


def late_by(seconds, **settings):
    made = calendar(every=1.0, **settings)
    return made.decide(NOON, NOON + seconds * SECOND, 1000)


def offsets(ticks):
    return [(tick - NOON) // SECOND for tick in ticks]


def test_skip_drops_what_is_too_late_and_fires_what_is_in_time():
    decision = late_by(10, grace=2.0, misfire=MisfirePolicy.SKIP)
    assert offsets(decision.fire) == [10]
    assert decision.missed == (NOON, NOON + 9 * SECOND, 10)


@pytest.mark.parametrize("absent", [58, 60])
@pytest.mark.parametrize("settings", [{"every": 5.0}, {"cron": "*/5 * * * * *"}])
def test_fire_once_fires_once_after_an_absence_of_many_periods_within_the_grace(absent, settings):
    made = calendar(**settings, grace=60.0, misfire=MisfirePolicy.FIRE_ONCE)
    decision = made.decide(NOON, NOON + absent * SECOND, 1000)
    assert offsets(decision.fire) == [absent // 5 * 5]
    assert decision.next_tick == NOON + (absent // 5 + 1) * 5 * SECOND


def test_jitter_leaves_at_most_two_ticks_in_time_at_once():
    made = calendar(every=5.0, jitter=4.0, grace=60.0, misfire=MisfirePolicy.FIRE_ONCE)
    looks = range(NOON + 20 * SECOND, NOON + 120 * SECOND, 50)
    assert {len(made.decide(NOON, now, 1000).fire) for now in looks} == {1, 2}


def test_the_last_tick_of_a_schedule_is_in_time_for_the_whole_grace():
    end = moment(NOON + 10 * SECOND)
    made = calendar(every=5.0, end=end, grace=60.0, misfire=MisfirePolicy.SKIP)
    assert offsets(made.decide(NOON, NOON + 70 * SECOND, 1000).fire) == [10]
    assert made.decide(NOON, NOON + 71 * SECOND, 1000).fire == ()


def test_a_grace_of_many_periods_is_decided_without_walking_all_of_them():
    made = calendar(every=0.1, grace=10**9, misfire=MisfirePolicy.SKIP)
    assert offsets(made.decide(NOON, NOON + 10**9 * SECOND, 1000).fire) == [10**9]


def test_fire_once_makes_up_for_all_late_ticks_with_the_last_of_them():
    made = calendar(cron="0 * * * *", grace=60.0, misfire=MisfirePolicy.FIRE_ONCE)
    hour = 3600 * SECOND
    decision = made.decide(NOON, NOON + 5 * hour + 1800 * SECOND, 100)
    assert decision.fire == (NOON + 5 * hour,)
    assert decision.missed == (NOON, NOON + 4 * hour, 5)
    assert decision.next_tick == NOON + 6 * hour


def test_fire_once_fires_nothing_extra_when_a_tick_is_in_time():
    decision = late_by(10, grace=0.0, misfire=MisfirePolicy.FIRE_ONCE)
    assert offsets(decision.fire) == [10]


def test_fire_all_fires_the_latest_up_to_its_limit_oldest_first():
    decision = late_by(10, grace=2.0, misfire=MisfirePolicy.FIRE_ALL, catch_up=3)
    assert offsets(decision.fire) == [7, 8, 9, 10]
    assert decision.missed == (NOON, NOON + 6 * SECOND, 7)


def test_a_year_of_missed_seconds_is_decided_without_walking_all_of_them():
    made = calendar(cron="* * * * * *", misfire=MisfirePolicy.FIRE_ALL, catch_up=10, grace=0.0)
    walked = 0
    step = made._times.cron.next
    year = 365 * 24 * 3600 * SECOND

    class Counting:
        def next(self, after):
            nonlocal walked
            walked += 1
            found = step(moment(after))
            return millis(found)

    object.__setattr__(made, "_times", Counting())
    decision = made.decide(NOON, NOON + year, 100)
    assert offsets(decision.fire) == [year // SECOND - back for back in range(10, -1, -1)]
    assert decision.missed == (NOON, NOON + year - 11 * SECOND, COUNTED)
    assert walked < 3 * COUNTED


def test_jitter_is_drawn_from_name_and_tick_and_stays_in_its_span():
    made = calendar(cron="* * * * *", jitter=10.0)
    ticks = [tick for tick, _ in zip(made.walk(NOON), range(200), strict=False)]
    parts = [made.due(tick) - tick for tick in ticks]
    assert all(0 <= part < 10 * SECOND for part in parts)
    assert len(set(parts)) > 150
    other = Calendar.of(Schedule(name="t", target=JOB, cron="* * * * *", jitter=10.0))
    assert [other.due(tick) - tick for tick in ticks] != parts


def test_another_process_has_the_same_ticks_and_jitter():
    code = (
        "from lexigram.schedule import JobTarget, Schedule\n"
        "from lexigram.schedule.ticks import Calendar\n"
        "made = Calendar.of(Schedule(name='s', target=JobTarget(name='work'),"
        " cron='*/7 1-3 * * *', timezone='Europe/Berlin', jitter=9.0))\n"
        f"print([(t, made.due(t)) for t, _ in zip(made.walk({NOON}), range(50))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    made = calendar(cron="*/7 1-3 * * *", timezone="Europe/Berlin", jitter=9.0)
    here = [(tick, made.due(tick)) for tick, _ in zip(made.walk(NOON), range(50), strict=False)]
    assert done.stdout.strip() == str(here)


def test_bounds_are_both_included():
    start, end = (
        datetime(2026, 1, 1, 12, 0, 10, tzinfo=UTC),
        datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC),
    )
    made = calendar(every=10.0, start=start, end=end)
    assert offsets(made.walk(0)) == [10, 20, 30]


def test_an_interval_counts_from_its_start_else_from_1970():
    assert offsets([calendar(every=7.0).next(NOON)])[0] == 7 - (NOON // SECOND) % 7
    start = datetime(2026, 1, 1, 12, 0, 3, tzinfo=UTC)
    assert offsets([calendar(every=7.0, start=start).next(NOON)]) == [3]


@given(ms=st.integers(0, 2**42))
def test_milliseconds_are_exact(ms):
    assert millis(moment(ms)) == ms


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "gives none of them"),
        ({"cron": "* * * * *", "every": 1.0}, "gives cron and every"),
        ({"every": -5.0}, "every -5.0 s"),
        ({"every": 0}, "every 0 s"),
        ({"every": float("nan")}, "every nan s"),
        ({"every": float("inf")}, "every inf s"),
        ({"every": 5.0, "jitter": 5.0}, "jitter of 5 s but repeats every 5 s"),
        ({"every": 5.0, "jitter": -1.0}, "jitter of -1.0 s"),
        ({"every": 5.0, "grace": -1.0}, "grace of -1.0 s"),
        ({"every": 5.0, "catch_up": 0}, "catches up 0 ticks"),
        ({"at": datetime(2026, 1, 1)}, "without a time zone"),  # noqa: DTZ001 - that is the point
        (
            {
                "every": 5.0,
                "start": datetime(2026, 1, 2, tzinfo=UTC),
                "end": datetime(2026, 1, 1, tzinfo=UTC),
            },
            "ends before it starts",
        ),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused_with_a_fix(settings, text):
    with pytest.raises(InvalidScheduleError) as caught:
        Schedule(name="s", target=JOB, **settings)
    assert text in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", ["", " s", "x" * 201])
def test_a_bad_name_is_refused(name):
    with pytest.raises(InvalidScheduleError, match="is no name for a schedule"):
        Schedule(name=name, target=JOB, every=1.0)


def test_a_schedule_survives_its_text():
    schedule = Schedule(
        name="s",
        target=JobTarget(name="work", args=(1, "ü"), kwargs={"a": [None, 2.5]}, tick_argument="at"),
        cron="30 2 * * *",
        timezone="Europe/Berlin",
        start=datetime(2026, 1, 1, tzinfo=UTC),
        misfire=MisfirePolicy.FIRE_ALL,
        jitter=3.0,
    )
    assert read("s", written(schedule)) == schedule


def test_arguments_that_are_not_json_are_refused():
    with pytest.raises(InvalidScheduleError, match="which JSON cannot hold"):
        written(Schedule(name="s", target=JobTarget(name="w", args=(object(),)), every=1.0))
