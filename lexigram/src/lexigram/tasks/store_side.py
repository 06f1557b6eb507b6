"""Progress and submissions in the database of the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import Any

from lexigram.contracts.data.sql.database import QueryResult
from lexigram.contracts.infra.tasks.protocols import NewsProtocol
from lexigram.contracts.infra.tasks.types import ProgressSnapshot, ProgressStatus
from lexigram.sql.database import Database
from lexigram.sql.leasing.wakeup import WakeUp
from lexigram.tasks import statements as sql
from lexigram.tasks.idempotency import Submission
from lexigram.tasks.store_sql import made_for, now_for, translated


class SqlProgress:
    """Implements ProgressStore. Inside a transaction a report is seen after its commit."""

    def __init__(self, database: Database, *, poll: float = 1.0) -> None:
        self._database = database
        self._poll = poll

    async def report(self, snapshot: ProgressSnapshot) -> None:
        values = (snapshot.task_id, snapshot.current, snapshot.total, snapshot.message)
        changed = await _execute(self._database, sql.REPORT, (now_for(self._database), *values))
        if changed.rows:
            await self._tell(snapshot.task_id)

    async def end(self, snapshot: ProgressSnapshot) -> None:
        values = (snapshot.task_id, snapshot.status.value, snapshot.message, snapshot.error)
        changed = await _execute(
            self._database, sql.END_PROGRESS, (now_for(self._database), *values)
        )
        if changed.rows:
            await self._tell(snapshot.task_id)

    async def get(self, task_id: str) -> ProgressSnapshot | None:
        found = await translated(lambda: self._database.execute_query(sql.GET_PROGRESS, (task_id,)))
        row = found.first()
        if row is None:
            return None
        return ProgressSnapshot(
            row["task_id"],
            row["done"],
            row["total"],
            ProgressStatus(row["status"]),
            row["message"],
            row["error"],
        )

    async def purge(self, older_than: float) -> int:
        params = (now_for(self._database), older_than)
        return len((await _execute(self._database, sql.PURGE_PROGRESS, params)).rows)

    def listening(self, task_id: str) -> AbstractAsyncContextManager[NewsProtocol]:
        return WakeUp(self._database, _channel(task_id), self._poll).waiting()

    async def _tell(self, task_id: str) -> None:
        await translated(lambda: self._database.notify(_channel(task_id)))


class SqlSubmissions:
    """Implements SubmissionStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, submission: Submission, task_name: str) -> bool:
        params = (now_for(self._database), submission.key, submission.task_id, task_name)
        return bool((await _execute(self._database, sql.SUBMIT, params)).rows)

    async def get(self, key: str) -> Submission | None:
        found = await translated(lambda: self._database.execute_query(sql.GET_SUBMISSION, (key,)))
        row = found.first()
        if row is None:
            return None
        return Submission(
            key=row["key"],
            task_id=row["task_id"],
            created_at=row["created_at"],
            is_completed=bool(row["is_completed"]),
            result=row["result"],
        )

    async def complete(self, key: str, result: str | None) -> None:
        await _execute(self._database, sql.COMPLETE_SUBMISSION, (result, key))

    async def purge(self, older_than: float) -> int:
        params = (now_for(self._database), older_than)
        return len((await _execute(self._database, sql.PURGE_SUBMISSIONS, params)).rows)


async def _execute(database: Database, text: str, params: Sequence[Any]) -> QueryResult:
    statement = made_for(database, text)
    return await translated(lambda: database.execute(statement, params))


def _channel(task_id: str) -> str:
    # A channel per task: a NOTIFY that nobody listens to costs next to nothing. Its name is at
    # most 63 characters long, ids may be longer.
    return f"lexigram_progress_{sha256(task_id.encode()).hexdigest()[:24]}"
