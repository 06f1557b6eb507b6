"""Cron expressions in a time zone: which moments they name, also when clocks are changed.

A time of day (minute and hour both given: ``30 2 * * *``) fires once a day: a time that the
change to summer leaves out fires at the end of the gap, one that comes twice fires the first
time. What repeats (minute or hour starts with ``*``: ``*/15 * * * *``) follows real time: it
fires in both of two equal hours, and an hour that is left out has no ticks. docs/explanation/
schedules.md shows both.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from zoneinfo import ZoneInfo

from attrs import field, frozen
from cronsim import CronSim, CronSimError

from lexigram.contracts.infra.schedule.errors import CronExpressionError
from lexigram.schedule.zones import first_change

_FIELDS = ("second", "minute", "hour", "day of month", "month", "day of week")
_RANGES = ("0-59", "0-59", "0-23", "1-31, L, LW", "1-12 or JAN-DEC", "0-7 or SUN-SAT")
_BOUNDS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_NAMES = {4: "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", 5: "SUN MON TUE WED THU FRI SAT"}
_SHORTHANDS = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_SECOND = timedelta(seconds=1)
_ANY_DAY = datetime(2024, 1, 1)  # noqa: DTZ001 - wall time, to try an expression


@frozen
class Cron:
    """The moments an expression names in a zone; made by ``parsed``."""

    expression: str
    where: ZoneInfo
    _repeats: bool = field()

    @classmethod
    def parsed(cls, text: str, where: ZoneInfo) -> Cron:
        """Check an expression; CronExpressionError names the field that is wrong."""
        expression = checked_cron(text)
        *_, minute, hour, _, _, _ = expression.split()
        return cls(expression, where, minute.startswith("*") or hour.startswith("*"))

    def next(self, after: datetime) -> datetime | None:
        """The first moment after ``after``, in UTC; None when there is none for 50 years."""
        if self.where.key == "UTC":
            return _aware(next(_walls(self.expression, _naive(after, UTC)), None))
        return self._in_real_time(after) if self._repeats else self._on_the_wall(after)

    def _on_the_wall(self, after: datetime) -> datetime | None:
        """Every wall time means one moment, and later ones never mean earlier moments."""
        for wall in _walls(self.expression, _naive(after, self.where)):
            moment = self._moment(wall)
            if moment > after:
                return moment
        return None

    def _in_real_time(self, after: datetime) -> datetime | None:
        """Between two changes of the offset wall time runs like real time."""
        begin = after
        while True:
            offset = begin.astimezone(self.where).utcoffset() or timedelta(0)
            wall = next(_walls(self.expression, _naive(begin, self.where)), None)
            if wall is None:
                return None
            found = (wall - offset).replace(tzinfo=UTC)
            change = first_change(self.where, begin, found)
            if change is None:
                return found
            first = _naive(change, self.where)
            if next(_walls(self.expression, first - _SECOND), None) == first:
                return change
            begin = change

    def _moment(self, wall: datetime) -> datetime:
        moment = wall.replace(tzinfo=self.where).astimezone(UTC)
        if _naive(moment, self.where) == wall:
            return moment
        # In the gap: before it by the new offset, after it by the old one.
        early = wall.replace(tzinfo=self.where, fold=1).astimezone(UTC)
        return first_change(self.where, min(early, moment), max(early, moment)) or moment


def checked_cron(text: str) -> str:
    """The expression without shorthands; CronExpressionError names the field that is wrong."""
    expression = _SHORTHANDS.get(text.strip().upper(), text)
    _check(text, expression)
    return expression


def _walls(expression: str, after: datetime) -> Iterator[datetime]:
    return iter(CronSim(expression, after))


def _naive(at: datetime, where: tzinfo) -> datetime:
    return at.astimezone(where).replace(tzinfo=None, fold=0)


def _aware(wall: datetime | None) -> datetime | None:
    return None if wall is None else wall.replace(tzinfo=UTC)


def _check(text: str, expression: str) -> None:
    if text.strip().startswith("@") and expression is text:
        near = get_close_matches(text.strip().upper(), _SHORTHANDS, n=1)
        known = ", ".join(each.lower() for each in _SHORTHANDS)
        raise _wrong(text, "unknown shorthand", near[0].lower() if near else f"one of {known}")
    parts = expression.upper().split()
    if len(parts) not in {5, 6}:
        raise _wrong(
            text,
            f"it has {len(parts)} field{'' if len(parts) == 1 else 's'}",
            "five fields: minute hour day-of-month month day-of-week; or six, seconds first",
        )
    shift = 6 - len(parts)
    for position, part in enumerate(parts, start=shift):
        _check_field(text, position, part)
    try:
        found = next(_walls(expression, _ANY_DAY), None)
    except CronSimError:
        found = None
    if found is None:
        raise _wrong(text, "no month has such a day", "a day that some month has")


def _check_field(text: str, position: int, part: str) -> None:
    # Alone, so that the field is known; all others accept anything.
    others = ["*"] * 6
    others[position] = part
    try:
        CronSim(" ".join(others), _ANY_DAY)
    except CronSimError:
        reason, fix = _reason(position, part)
        raise _wrong(text, f"{_FIELDS[position]} {part!r} {reason}", fix, position) from None


def _reason(position: int, part: str) -> tuple[str, str]:
    """Why a field is wrong, and what may be meant."""
    low, high = _BOUNDS[position]
    words = _NAMES.get(position, "").split()
    for term in part.split(","):
        base, _, step = term.partition("/")
        if "/" in term and not (step.isdigit() and int(step) > 0):
            return f"has the step {step!r}", f"a step of 1 or more, such as {base or '*'}/5"
        if base == "*":
            continue
        ends = base.partition("#")[0].split("-")
        for end in ends:
            if end.isdigit() and not low <= int(end) <= high:
                return f"is out of range: {end}", f"a value within {_RANGES[position]}"
            if end.isalpha() and end not in words:
                near = get_close_matches(end, words, n=1) or get_close_matches(end[:3], words, n=1)
                if near:
                    return f"has the unknown name {end}", near[0]
        if len(ends) == 2 and all(end.isdigit() for end in ends) and int(ends[0]) > int(ends[1]):
            first, last = ends
            if int(first) <= high:
                return "runs backwards", f"{first}-{high},{low}-{last}"
    return "is not understood", f"values within {_RANGES[position]}, *, a-b, a,b or */n"


def _wrong(text: str, reason: str, fix: str, position: int | None = None) -> CronExpressionError:
    return CronExpressionError(
        f"cron expression {text!r}: {reason}",
        details={"cron": text, "field": None if position is None else _FIELDS[position]},
        hint=f"write {fix}",
    )
