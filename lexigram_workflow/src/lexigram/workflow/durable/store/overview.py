"""Durable runs for operators: paged lists, counts and durations; and removing a group.

Nothing here locks what workers use, except the removal of a group that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from attrs import frozen

from lexigram.contracts.data.sql.database import QueryResult
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.contracts.workflow.limits import check_id, check_optional_ids, check_page
from lexigram.sql.database import Database
from lexigram.sql.leasing import lease_now
from lexigram.sql.steps import Steps
from lexigram.workflow.durable.errors import GroupBusyError, RunNotFoundError
from lexigram.workflow.durable.store import statements as shared
from lexigram.workflow.durable.store.base import translate_errors
from lexigram.workflow.durable.store.records import Row

# The status of a run as callers see it; the same as ``store.run_status``.
_RUN_STATUS = """CASE WHEN r.status IN ('completed', 'failed', 'cancelled', 'running')
    THEN upper(r.status) WHEN r.started_at IS NULL THEN 'PENDING' ELSE 'RUNNING' END"""

# What a run waits for, or one of those that it made and waits for: ix_lexigram_durable_runs_children.
_ASKS = """CASE WHEN r.completed_at IS NOT NULL THEN NULL WHEN r.children > 0 THEN (
    SELECT min(c.parked) FROM lexigram_durable_runs c
    WHERE c.parent_id = r.id AND c.parent_step = r.fan AND c.completed_at IS NULL)
    ELSE r.parked END"""

_GROUP_FILTER = """
WHERE (CAST(? AS BIGINT) IS NULL OR g.batch_id = CAST(? AS BIGINT))
    AND (CAST(? AS TEXT) IS NULL OR g.status = lower(CAST(? AS TEXT)))"""
# From the new end of the primary key until the page is full.
GROUPS = (
    f"SELECT g.* FROM lexigram_durable_groups g {_GROUP_FILTER} ORDER BY g.id DESC LIMIT ? OFFSET ?"  # noqa: S608 - pieces of this file
)
# Reads all groups that fit.
COUNT_GROUPS = f"SELECT count(*) AS n FROM lexigram_durable_groups g {_GROUP_FILTER}"  # noqa: S608 - pieces of this file
GROUP = "SELECT g.* FROM lexigram_durable_groups g WHERE g.id = ?"

# Runs that other runs made are found by those.
_RUN_FILTER = f"""
WHERE r.parent_id IS NULL AND (CAST(? AS BIGINT) IS NULL OR r.group_id = CAST(? AS BIGINT))
    AND (CAST(? AS BIGINT) IS NULL OR r.batch_id = CAST(? AS BIGINT))
    AND (CAST(? AS TEXT) IS NULL OR {_RUN_STATUS} = CAST(? AS TEXT))"""
_RUN = f"""
SELECT r.id AS id, r.group_id AS run_group_id, p.workflow_id AS workflow_definition_id,
    p.param_id AS param_definition_id, r.batch_id AS batch_id, r.doc_id AS doc_id,
    r.parent_id AS parent_run_id, r.tenant AS tenant, r.priority AS priority, {_RUN_STATUS} AS status, r.status AS state,
    r.step_no AS step_no, r.n_steps AS n_steps, r.created_at AS created_at,
    r.started_at AS started_at, r.completed_at AS completed_at, r.status_at AS status_at,
    r.message AS status_message, r.params AS params, {_ASKS} AS asks
FROM lexigram_durable_runs r JOIN lexigram_durable_plans p ON p.id = r.plan_id"""  # noqa: S608 - pieces of this file
# With a group: its index. Without: from the new end of the primary key until the page is full.
RUNS = f"{_RUN} {_RUN_FILTER} ORDER BY r.id DESC LIMIT ? OFFSET ?"
COUNT_RUNS = f"SELECT count(*) AS n FROM lexigram_durable_runs r {_RUN_FILTER}"  # noqa: S608 - pieces of this file
RUN = f"{_RUN} WHERE r.id = ?"

_STEP = """
SELECT s.id, s.workflow_run_id, s.workflow_step_number, s.workflow_step_name, s.step_config_id,
    s.step_type, s.is_last_step, s.created_date, s.priority, s.start_date, s.status_date,
    s.completed_date, s.retry, s.retries, s.status, s.status_message, s.status_meta, s.worker_id,
    s.resource_key
FROM runstep s"""
STEPS_OF_RUN = f"{_STEP} WHERE s.workflow_run_id = ? ORDER BY s.workflow_step_number"
# A run has at most one step that runs, failed or waits for another try: where it is. Others are
# found by reading from the new end until the page is full.
_STEP_FILTER = """
JOIN lexigram_durable_runs r ON r.id = s.workflow_run_id
WHERE (CAST(? AS TEXT) IS NULL OR s.status = CAST(? AS TEXT))
    AND (CAST(? AS TEXT) IS NULL OR CAST(? AS TEXT) NOT IN ('FAILED', 'RUNNING')
        OR r.status = lower(CAST(? AS TEXT)))
    AND (CAST(? AS BIGINT) IS NULL OR r.group_id = CAST(? AS BIGINT))
    AND (CAST(? AS BIGINT) IS NULL OR r.batch_id = CAST(? AS BIGINT))"""
STEPS = f"""{_STEP} {_STEP_FILTER}
ORDER BY s.workflow_run_id DESC, s.workflow_step_number LIMIT ? OFFSET ?"""

# Index (group_id, status); reads the runs of the group or batch.
COUNTS = f"""
SELECT {_RUN_STATUS} AS status, count(*) AS n FROM lexigram_durable_runs r
WHERE r.batch_id = ? AND r.parent_id IS NULL GROUP BY 1"""  # noqa: S608 - pieces of this file

# The members of the batch by primary key, and its runs as in COUNTS: of one document several may
# have completed.
DOCUMENTS_DONE = """
SELECT count(*) AS n FROM lexigram_durable_batch_documents m
WHERE m.batch_id = ? AND m.doc_hash IN (
    SELECT r.doc_id FROM lexigram_durable_runs r
    WHERE r.batch_id = ? AND r.status = 'completed' AND r.parent_id IS NULL)"""

# Index (group_id, status), then the history of each run by its primary key.
STEP_STATS = """
SELECT s.name AS step, s.step_type AS step_type, s.step_no AS step_no, h.status AS status,
    count(*) AS attempts, avg(h.finished_at - h.started_at) AS average_duration,
    min(h.finished_at - h.started_at) AS shortest, max(h.finished_at - h.started_at) AS longest
FROM lexigram_durable_runs r
JOIN lexigram_durable_history h ON h.run_id = r.id
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = h.step_no
WHERE r.group_id = ? GROUP BY s.step_no, s.name, s.step_type, h.status ORDER BY s.step_no, h.status"""
DURATIONS = f"""
SELECT r.id AS workflow_run_id, r.doc_id AS doc_id, {_RUN_STATUS} AS status,
    r.completed_at - r.started_at AS duration
FROM lexigram_durable_runs r
WHERE r.group_id = ? AND r.parent_id IS NULL AND r.completed_at IS NOT NULL
ORDER BY duration DESC, r.id LIMIT ?"""  # noqa: S608 - pieces of this file

# Index of the group; those of the group itself have run 0.
LIFECYCLE = """
SELECT l.event_id, l.handler_no, l.handler_name, l.kind AS event, l.group_id AS run_group_id,
    l.run_id AS workflow_run_id, l.step_no, l.status, l.attempts, l.worker_id, l.started_at,
    l.finished_at, l.message AS status_message, l.meta
FROM lexigram_durable_lifecycle l
WHERE l.group_id = ? AND (CAST(? AS BIGINT) IS NULL OR l.run_id IN (0, CAST(? AS BIGINT)))
ORDER BY l.started_at, l.event_id, l.handler_no LIMIT ?"""
# Reads the groups until one fits; asked when a parameter set shall be deleted.
USES_PARAMS = "SELECT id FROM lexigram_durable_groups WHERE param_id = ? LIMIT 1"

LOCKS = "SELECT * FROM resourcelock ORDER BY resource_key"
WORKERS = "SELECT * FROM workercheckin ORDER BY first_checkin"

# Index (group_id, status); row locks from the highest number down, and before that of the group, as
# everybody who waits for several. A retry skips them and finds nothing.
_HOLD_RUNS = """
SELECT id FROM lexigram_durable_runs WHERE group_id = ? ORDER BY id DESC FOR UPDATE"""
# Primary key; row lock.
_CLOSED_POSTGRES = "SELECT id, completed_at FROM lexigram_durable_groups WHERE id = ? FOR UPDATE"
_CLOSED_SQLITE = "SELECT id, completed_at FROM lexigram_durable_groups WHERE id = ?"
_OF_GROUP = "(SELECT id FROM lexigram_durable_runs WHERE group_id = ?)"
FORGET_HISTORY = f"DELETE FROM lexigram_durable_history WHERE run_id IN {_OF_GROUP}"  # noqa: S608 - pieces of this file
FORGET_RUNS = "DELETE FROM lexigram_durable_runs WHERE group_id = ?"


@frozen(kw_only=True)
class Page:
    """Some of many records."""

    items: Sequence[Mapping[str, Any]]
    total: int


class Overview:
    """Durable runs as operators see them: plain data, ready for JSON."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def groups(
        self,
        *,
        batch_id: int | None = None,
        status: RunStatus | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Page:
        """Groups, the newest first."""
        check_optional_ids(batch_id=batch_id)
        check_page(limit, offset)
        chosen = _twice(batch_id, _value(status))
        rows = await self._rows(GROUPS, (*chosen, limit, offset))
        total = (await self._rows(COUNT_GROUPS, chosen))[0]["n"]
        return Page(items=[_group(row) for row in rows], total=total)

    async def group(self, group_id: int) -> Mapping[str, Any]:
        """One group; raises RunNotFoundError."""
        check_id("group_id", group_id)
        rows = await self._rows(GROUP, (group_id,))
        if not rows:
            raise RunNotFoundError(f"there is no group {group_id}", details={"group_id": group_id})
        return _group(rows[0])

    async def runs(
        self,
        *,
        group_id: int | None = None,
        batch_id: int | None = None,
        status: RunStatus | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Page:
        """Runs, the newest first; without those that other runs made."""
        check_optional_ids(group_id=group_id, batch_id=batch_id)
        check_page(limit, offset)
        chosen = _twice(group_id, batch_id, _value(status))
        rows = await self._rows(RUNS, (*chosen, limit, offset))
        total = (await self._rows(COUNT_RUNS, chosen))[0]["n"]
        return Page(items=[_run(row) for row in rows], total=total)

    async def run(self, run_id: int) -> Mapping[str, Any]:
        """One run with its steps, those not reached yet included; raises RunNotFoundError."""
        check_id("run_id", run_id)
        rows = await self._rows(RUN, (run_id,))
        if not rows:
            raise RunNotFoundError(f"there is no run {run_id}", details={"run_id": run_id})
        return {**_run(rows[0]), "steps": await self.steps_of(run_id)}

    async def steps_of(self, run_id: int) -> Sequence[Mapping[str, Any]]:
        """The steps of a run; none when there is no such run."""
        check_id("run_id", run_id)
        return [_step(row) for row in await self._rows(STEPS_OF_RUN, (run_id,))]

    async def steps(
        self,
        *,
        status: RunStatus | None = None,
        group_id: int | None = None,
        batch_id: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[Mapping[str, Any]]:
        """Steps, those of the newest runs first."""
        check_optional_ids(group_id=group_id, batch_id=batch_id)
        check_page(limit, offset)
        wanted = _value(status)
        chosen = (*_twice(wanted), wanted, *_twice(wanted), *_twice(group_id, batch_id))
        rows = await self._rows(STEPS, (*chosen, limit, offset))
        return [_step(row) for row in rows]

    async def counts(self, batch_id: int) -> Mapping[str, int]:
        """How many runs of a batch have which status."""
        check_id("batch_id", batch_id)
        return {row["status"]: row["n"] for row in await self._rows(COUNTS, (batch_id,))}

    async def documents_done(self, batch_id: int) -> int:
        """How many documents of a batch have a run that completed."""
        check_id("batch_id", batch_id)
        number: int = (await self._rows(DOCUMENTS_DONE, (batch_id, batch_id)))[0]["n"]
        return number

    async def step_stats(self, group_id: int) -> Sequence[Mapping[str, Any]]:
        """Attempts and durations of each step of a group, by how they ended."""
        await self.group(group_id)
        return [dict(row) for row in await self._rows(STEP_STATS, (group_id,))]

    async def durations(self, group_id: int, *, limit: int = 1000) -> Sequence[Mapping[str, Any]]:
        """Runs of a group that ended, the longest first."""
        check_page(limit, 0)
        await self.group(group_id)
        return [dict(row) for row in await self._rows(DURATIONS, (group_id, limit))]

    async def lifecycle(
        self, *, run_id: int | None = None, group_id: int | None = None, limit: int = 1000
    ) -> Sequence[Mapping[str, Any]]:
        """Handlers of events that were called: of a run and its group, or of a whole group."""
        check_optional_ids(group_id=group_id, run_id=run_id)
        check_page(limit, 0)
        if run_id is not None:
            group_id = (await self.run(run_id))["run_group_id"]
        rows = await self._rows(LIFECYCLE, (group_id, run_id, run_id, limit))
        return [_describe_handled(row) for row in rows]

    async def uses_params(self, param_id: str) -> bool:
        """Whether a group that is kept was made with the parameter set."""
        return bool(await self._rows(USES_PARAMS, (param_id,)))

    async def locks(self) -> Sequence[Mapping[str, Any]]:
        """Locked resources and their holders."""
        return [
            {
                **_format_dates(row, "acquired_at", "expires_at"),
                "holder_meta": _json(row["holder_meta"]),
            }
            for row in await self._rows(LOCKS, ())
        ]

    async def workers(self) -> Sequence[Mapping[str, Any]]:
        """Workers that have checked in."""
        rows = await self._rows(WORKERS, ())
        return [_format_dates(row, "first_checkin", "last_checkin") for row in rows]

    async def now(self) -> float:
        """The clock that check-ins and leases are by."""
        return await translate_errors(
            lambda: self._db.run_steps(lambda: lease_now(self._db.dialect))
        )

    async def remove_group(self, group_id: int) -> Mapping[str, int]:
        """Remove a group that has ended with all it has; how many rows of what.

        Raises RunNotFoundError, and GroupBusyError while runs of it are not final.
        """
        check_id("group_id", group_id)

        def steps() -> Steps[Mapping[str, int]]:
            _check_ended(group_id, (yield _CLOSED_SQLITE, (group_id,)).first())
            if self._db.dialect == "postgresql":
                yield _HOLD_RUNS, (group_id,)
                _check_ended(group_id, (yield _CLOSED_POSTGRES, (group_id,)).first())
            attempts = (yield FORGET_HISTORY, (group_id,)).row_count
            yield shared.FORGET_EVENTS, (group_id,)
            yield shared.FORGET_LIFECYCLE, (group_id,)
            runs = (yield FORGET_RUNS, (group_id,)).row_count
            yield shared.DROP_GROUP, (group_id,)
            return {"deleted_groups": 1, "deleted_runs": runs, "deleted_attempts": attempts}

        return await translate_errors(lambda: self._db.run_steps(steps))

    async def _rows(self, statement: str, params: Sequence[Any]) -> Sequence[Row]:
        result: QueryResult = await translate_errors(
            lambda: self._db.execute_query(statement, params)
        )
        return result.rows


def _check_ended(group_id: int, group: Row | None) -> None:
    if group is None:
        raise RunNotFoundError(f"there is no group {group_id}", details={"group_id": group_id})
    if group["completed_at"] is None:
        raise GroupBusyError(
            f"group {group_id} has runs that are not final",
            details={"group_id": group_id},
            hint=f"cancel it first: lexigram workflow cancel {group_id}",
        )


def _twice(*values: Any) -> tuple[Any, ...]:
    """A filter asks for its value twice: is there one, and does it fit."""
    return tuple(value for value in values for _ in range(2))


def _value(status: RunStatus | None) -> str | None:
    return None if status is None else status.value


def _group(row: Row) -> Mapping[str, Any]:
    return {
        "id": row["id"],
        "name": row["name"],
        "workflow_definition_id": row["workflow_id"],
        "param_definition_id": row["param_id"],
        "batch_id": row["batch_id"],
        "status": row["status"].upper(),
        "total_runs": row["total"],
        "remaining": row["remaining"],
        "failed": row["failed"],
        "cancelled": row["cancelled"],
        "created_date": moment(row["created_at"]),
        "start_date": moment(row["started_at"]),
        "completed_date": moment(row["completed_at"]),
        "duration": _between(row["started_at"], row["completed_at"]),
    }


def _run(row: Row) -> Mapping[str, Any]:
    return {
        "id": row["id"],
        "workflow_definition_id": row["workflow_definition_id"],
        "param_definition_id": row["param_definition_id"],
        "run_group_id": row["run_group_id"],
        "batch_id": row["batch_id"],
        "doc_id": row["doc_id"],
        # the run that made it
        "parent_run_id": row["parent_run_id"],
        "tenant": row["tenant"],
        "priority": row["priority"],
        "status": row["status"],
        # what it waits for, where it waits: ready, delayed, blocked, paused, waiting, parked
        "state": row["state"],
        # the question, where it is one; that of a run that it made, too
        "asks": row["asks"],
        "step": row["step_no"],
        "steps_total": row["n_steps"],
        "created_date": moment(row["created_at"]),
        "start_date": moment(row["started_at"]),
        "completed_date": moment(row["completed_at"]),
        "status_date": moment(row["status_at"]),
        "status_message": row["status_message"],
        "run_params": _json(row["params"]),
        "duration": _between(row["started_at"], row["completed_at"]),
    }


def _step(row: Row) -> Mapping[str, Any]:
    facts = _format_dates(row, "created_date", "start_date", "status_date", "completed_date")
    return {
        **facts,
        "is_last_step": bool(row["is_last_step"]),
        "status_meta": _json(row["status_meta"]),
    }


def _describe_handled(row: Row) -> Mapping[str, Any]:
    facts = {name: row[name] for name in row if name not in ("started_at", "finished_at", "meta")}
    return {
        **facts,
        "workflow_run_id": row["workflow_run_id"] or None,
        "step_no": row["step_no"] or None,
        "start_date": moment(row["started_at"]),
        "completed_date": moment(row["finished_at"]),
        "status_meta": _json(row["meta"]),
    }


def _format_dates(row: Row, *names: str) -> dict[str, Any]:
    return {**row, **{name: _iso(row[name]) for name in names}}


def _iso(value: Any) -> str | None:
    """A date of a view: a moment on PostgreSQL, text in UTC on SQLite."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.replace(" ", "T") + "+00:00"
    text: str = value.astimezone(UTC).isoformat(timespec="milliseconds")
    return text


def moment(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO text in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _between(began: float | None, ended: float | None) -> float | None:
    return None if began is None or ended is None else round(ended - began, 6)


def _json(text: Any) -> Any:
    if not isinstance(text, str):
        return text or {}
    return orjson.loads(text or "{}")
