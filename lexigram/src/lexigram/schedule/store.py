"""Every statement on schedules and firings, for both databases."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from attrs import frozen

from lexigram.sql.steps import Steps
from lexigram.sql.url import Dialect

T = TypeVar("T")
Row: TypeAlias = dict[str, Any]
StepsOf: TypeAlias = Callable[[], Steps[T]]

_COLUMNS = "name, definition, state, origin, owner, next_tick, due, last_tick, failures, last_error"

# Primary key; no lock.
FIND = f"SELECT {_COLUMNS} FROM lexigram_schedules WHERE name = ?"  # noqa: S608 - a constant
# The whole table, by the primary key.
ALL = f"SELECT {_COLUMNS} FROM lexigram_schedules ORDER BY name"  # noqa: S608 - a constant
# The first entry of the index on due.
NEXT_DUE = "SELECT min(due) AS due FROM lexigram_schedules"

# Primary key; the second one inserts nothing.
INSERT = """
INSERT INTO lexigram_schedules
    (name, definition, state, origin, owner, next_tick, due, last_tick, failures, last_error)
VALUES (?, ?, ?, ?, ?, ?, ?, NULL, 0, NULL)
ON CONFLICT (name) DO NOTHING"""

# Primary key; row lock. Only the row that was read is replaced: a tick may have come between.
REPLACE = """
UPDATE lexigram_schedules
SET definition = ?, state = ?, origin = ?, owner = ?, next_tick = ?, due = ?,
    failures = 0, last_error = NULL
WHERE name = ?"""

# Primary key; row locks. The firings go with their schedule.
DELETE = "DELETE FROM lexigram_schedules WHERE name = ?"
DELETE_FIRINGS = "DELETE FROM lexigram_schedule_firings WHERE schedule = ?"

# Primary key; row lock. A schedule that fails is tried later, by all processes, with its tick
# unchanged: that keeps a wrong one from being tried in a loop.
PUT_OFF = """
UPDATE lexigram_schedules SET due = ?, failures = failures + 1, last_error = ?
WHERE name = ? AND next_tick = ? AND due IS NOT NULL"""

# The whole table of one owner, at the start of an application.
RETIRE = """
UPDATE lexigram_schedules SET state = 'inactive', next_tick = NULL, due = NULL
WHERE name = ? AND origin = 'code' AND state <> 'inactive'"""

# By the primary key, from its end.
FIRINGS = """
SELECT schedule, tick, manual, fired, state, reference, error FROM lexigram_schedule_firings
WHERE schedule = ? ORDER BY tick DESC, manual DESC LIMIT ?"""

# The first entry of the index on lease.
UNFINISHED = "SELECT min(lease) AS lease FROM lexigram_schedule_firings WHERE lease IS NOT NULL"

# Primary key; row lock.
FINISH = """
UPDATE lexigram_schedule_firings SET state = ?, error = ?, lease = NULL
WHERE schedule = ? AND tick = ? AND manual = ? AND holder = ?"""

# The index on lease: it holds unfinished callbacks only. Row locks.
RENEW = """
UPDATE lexigram_schedule_firings SET lease = ? WHERE lease IS NOT NULL AND holder = ?"""

# The index on fired. An unfinished callback is kept; next_tick remembers what was fired.
FORGET = "DELETE FROM lexigram_schedule_firings WHERE fired < ? AND lease IS NULL"

_DUE = "SELECT name, definition, next_tick FROM lexigram_schedules WHERE due <= ?"
# A subquery would be scanned again for each row by some plans, and lock further rows each time.
_CLAIM = """
WITH claimable AS MATERIALIZED (
    SELECT schedule, tick, manual FROM lexigram_schedule_firings
    WHERE lease <= ? AND callback IN ({known})
    ORDER BY lease LIMIT ? {lock})
UPDATE lexigram_schedule_firings SET lease = ?, holder = ?
WHERE (schedule, tick, manual) IN (SELECT schedule, tick, manual FROM claimable)
RETURNING schedule, tick, manual, callback, fired"""


@frozen(kw_only=True)
class Statements:
    """What the two databases say differently."""

    # The row to be changed, so that nobody fires it in between.
    find_locked: str
    # The index on due, from its start. PostgreSQL: row locks, rows of other firing processes are
    # passed over; SQLite: one writer at a time.
    due: str
    due_one: str
    # Several rows from one JSON text, so that a batch is one round trip. A tick that is there
    # already is left out of what is returned.
    record: str
    advance: str
    refer: str
    # The index on lease; of two processes one gets the row.
    claim: str


SQLITE = Statements(
    find_locked=FIND,
    due=f"{_DUE} ORDER BY due LIMIT ?",
    due_one=f"{_DUE} AND name = ?",
    record="""
INSERT INTO lexigram_schedule_firings
    (schedule, tick, manual, fired, state, callback, lease)
SELECT json_extract(value, '$.schedule'), json_extract(value, '$.tick'), json_extract(value, '$.manual'), json_extract(value, '$.fired'),
    json_extract(value, '$.state'), json_extract(value, '$.callback'), json_extract(value, '$.lease')
FROM json_each(?) WHERE true
ON CONFLICT (schedule, tick, manual) DO NOTHING
RETURNING schedule, tick, manual""",
    advance="""
UPDATE lexigram_schedules SET next_tick = json_extract(r.value, '$.next_tick'), due = json_extract(r.value, '$.due'),
    last_tick = coalesce(json_extract(r.value, '$.last_tick'), last_tick), state = json_extract(r.value, '$.state'),
    failures = 0, last_error = NULL
FROM json_each(?) AS r WHERE lexigram_schedules.name = json_extract(r.value, '$.name')""",
    refer="""
UPDATE lexigram_schedule_firings SET reference = json_extract(r.value, '$.reference')
FROM json_each(?) AS r
WHERE lexigram_schedule_firings.schedule = json_extract(r.value, '$.schedule')
    AND lexigram_schedule_firings.tick = json_extract(r.value, '$.tick')
    AND lexigram_schedule_firings.manual = json_extract(r.value, '$.manual')""",
    claim=_CLAIM.format(known="SELECT value FROM json_each(?)", lock=""),
)

POSTGRES = Statements(
    find_locked=f"{FIND} FOR UPDATE",
    due=f"{_DUE} ORDER BY due LIMIT ? FOR UPDATE SKIP LOCKED",
    due_one=f"{_DUE} AND name = ? FOR UPDATE SKIP LOCKED",
    record="""
INSERT INTO lexigram_schedule_firings
    (schedule, tick, manual, fired, state, callback, lease)
SELECT schedule, tick, manual, fired, state, callback, lease
FROM json_to_recordset(CAST(? AS json)) AS r (schedule text, tick bigint, manual integer,
    fired bigint, state text, callback text, lease bigint)
ON CONFLICT (schedule, tick, manual) DO NOTHING
RETURNING schedule, tick, manual""",
    advance="""
UPDATE lexigram_schedules SET next_tick = r.next_tick, due = r.due,
    last_tick = coalesce(r.last_tick, lexigram_schedules.last_tick), state = r.state,
    failures = 0, last_error = NULL
FROM json_to_recordset(CAST(? AS json)) AS r (name text, next_tick bigint, due bigint,
    last_tick bigint, state text)
WHERE lexigram_schedules.name = r.name""",
    refer="""
UPDATE lexigram_schedule_firings SET reference = r.reference
FROM json_to_recordset(CAST(? AS json)) AS r (schedule text, tick bigint, manual integer,
    reference text)
WHERE lexigram_schedule_firings.schedule = r.schedule
    AND lexigram_schedule_firings.tick = r.tick AND lexigram_schedule_firings.manual = r.manual""",
    claim=_CLAIM.format(
        known="SELECT json_array_elements_text(CAST(? AS json))", lock="FOR UPDATE SKIP LOCKED"
    ),
)

STATEMENTS: Mapping[Dialect, Statements] = {"sqlite": SQLITE, "postgresql": POSTGRES}


def rows_as_json(rows: Sequence[Mapping[str, Any]]) -> str:
    """The parameter of ``record``, ``advance`` and ``refer``."""
    return json.dumps(list(rows))


def write_firings(
    sql: Statements, firings: Sequence[Row], advances: Sequence[Row]
) -> Steps[set[tuple[str, int, int]]]:
    """Record ticks and move their schedules on; which ticks were new."""
    new: set[tuple[str, int, int]] = set()
    if firings:
        found = yield sql.record, (rows_as_json(firings),)
        new = {(row["schedule"], row["tick"], row["manual"]) for row in found.rows}
    if advances:
        yield sql.advance, (rows_as_json(advances),)
    return new
