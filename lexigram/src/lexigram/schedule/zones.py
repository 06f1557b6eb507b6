"""Time zones: by name, and the moments at which their distance to UTC changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from lexigram.contracts.infra.schedule.errors import UnknownTimezoneError

_STEP = timedelta(days=1)  # no zone changes and changes back within a day
_SECOND = timedelta(seconds=1)


@cache  # there are 600 zones
def zone(name: str) -> ZoneInfo:
    """The zone of an IANA name; the first use of a name reads a file."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        known = available_timezones()
        by_folded = {each.casefold(): each for each in known}
        cities = {each.rpartition("/")[2].casefold(): each for each in sorted(known)}
        folded = name.casefold().replace(" ", "_")
        near = [by_folded[each] for each in get_close_matches(folded, by_folded, n=2)]
        near += [cities[each] for each in get_close_matches(folded, cities, n=1)]
        guesses = " or ".join(dict.fromkeys(near))
        raise UnknownTimezoneError(
            f"there is no time zone {name!r}",
            details={"timezone": name, "near": near},
            hint=f"did you mean {guesses}?" if near else "take an IANA name like Europe/Berlin",
        ) from None


def first_change(where: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    """The first whole second in (after, until] with another UTC offset than ``after`` has."""
    offset = _offset(where, after)
    low = after
    while low < until:
        high = min(low + _STEP, until)
        if _offset(where, high) != offset:
            return _bisect(where, low, high, offset)
        low = high
    return None


def _bisect(where: ZoneInfo, low: datetime, high: datetime, offset: timedelta | None) -> datetime:
    while high - low > _SECOND:
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if middle <= low:
            break
        if _offset(where, middle) == offset:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)


def _offset(where: ZoneInfo, at: datetime) -> timedelta | None:
    return at.astimezone(where).utcoffset()


def utc(at: datetime) -> datetime:
    """The same moment in UTC."""
    return at.astimezone(UTC)
