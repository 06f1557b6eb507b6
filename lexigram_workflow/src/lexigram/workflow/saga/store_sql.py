"""Sagas kept in a database: SQLite or PostgreSQL, one row each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lexigram.contracts.workflow.errors import SagaBusyError
from lexigram.contracts.workflow.sagas import StoredSaga
from lexigram.contracts.workflow.types import SagaState
from lexigram.sql.database import Database
from lexigram.sql.leasing import lease_now
from lexigram.sql.steps import Steps
from lexigram.workflow.saga._progress import json_text

# --- statements, the same on both databases; all but the last by primary key ---

# Row lock. The lease stays as it is.
SAVE = """
INSERT INTO lexigram_sagas (saga_id, state, data, updated_at) VALUES (?, ?, ?, ?)
ON CONFLICT (saga_id) DO UPDATE
SET state = excluded.state, data = excluded.data, updated_at = excluded.updated_at"""

LOAD = "SELECT * FROM lexigram_sagas WHERE saga_id = ?"

DELETE = "DELETE FROM lexigram_sagas WHERE saga_id = ?"

# No lock when the saga is there.
CREATE = """
INSERT INTO lexigram_sagas (saga_id, state, data, updated_at) VALUES (?, 'pending', '{}', ?)
ON CONFLICT (saga_id) DO NOTHING"""

# Row lock: of two claimers the second sees the lease of the first and gets no row.
CLAIM = """
UPDATE lexigram_sagas SET owner = ?, leased_until = ?
WHERE saga_id = ? AND (owner IS NULL OR owner = ? OR leased_until <= ?)
RETURNING *"""

# Row lock. The old owner's next SAVE_OWNED finds no row.
TAKE_OVER = "UPDATE lexigram_sagas SET owner = ?, leased_until = ? WHERE saga_id = ? RETURNING *"

# Row lock. The owner is the fence: who lost the saga changes nothing.
SAVE_OWNED = """
UPDATE lexigram_sagas SET state = ?, data = ?, updated_at = ?, owner = ?, leased_until = ?
WHERE saga_id = ? AND owner = ?"""

RENEW = "UPDATE lexigram_sagas SET leased_until = ? WHERE saga_id = ? AND owner = ?"

RELEASE = """
UPDATE lexigram_sagas SET owner = NULL, leased_until = NULL WHERE saga_id = ? AND owner = ?"""

# Index (state, updated_at), once for each of the two states; ended sagas are not read.
UNFINISHED = """
SELECT * FROM lexigram_sagas
WHERE state IN ('running', 'compensating') AND (leased_until IS NULL OR leased_until <= ?)
ORDER BY updated_at, saga_id LIMIT ?"""


class SqlSagaStore:
    """Implements ``LeasingSagaStoreProtocol`` on a ``Database``.

    A call returns after the commit; with SQLite that is as durable as ``sql.synchronous`` says.
    Inside a transaction of the caller it joins that. Leases are measured by the clock of the
    database server, or of the machine for SQLite.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def save(self, saga_id: str, state: SagaState, data: dict[str, Any]) -> None:
        """See the contract."""
        text = json_text(saga_id, data)

        def steps() -> Steps[None]:
            now = yield from lease_now(self._db.dialect)
            yield SAVE, (saga_id, state.value, text, now)

        await self._db.run_steps(steps)

    async def load(self, saga_id: str) -> tuple[SagaState, dict[str, Any]] | None:
        """See the contract."""
        row = (await self._db.execute_query(LOAD, (saga_id,))).first()
        return None if row is None else (SagaState(row["state"]), json.loads(row["data"]))

    async def delete(self, saga_id: str) -> None:
        """See the contract."""
        await self._db.execute(DELETE, (saga_id,))

    async def claim(
        self,
        saga_id: str,
        owner: str,
        lease: float,
        *,
        create: bool = True,
        take_over: bool = False,
    ) -> StoredSaga | None:
        """See the contract."""

        def steps() -> Steps[StoredSaga | None]:
            now = yield from lease_now(self._db.dialect)
            if create:
                yield CREATE, (saga_id, now)
            values = (owner, now + lease, saga_id)
            claimed = yield ((TAKE_OVER, values) if take_over else (CLAIM, (*values, owner, now)))
            if claimed.rows:
                return _stored(claimed.rows[0])
            found = (yield LOAD, (saga_id,)).first()
            if found is None:
                return None
            raise SagaBusyError(saga_id, found["owner"], found["leased_until"])

        return await self._db.run_steps(steps)

    async def save_owned(
        self, saga_id: str, state: SagaState, data: dict[str, Any], owner: str, lease: float | None
    ) -> None:
        """See the contract."""
        text = json_text(saga_id, data)

        def steps() -> Steps[None]:
            now = yield from lease_now(self._db.dialect)
            held = (None, None) if lease is None else (owner, now + lease)
            saved = yield SAVE_OWNED, (state.value, text, now, *held, saga_id, owner)
            if saved.row_count == 0:
                found = (yield LOAD, (saga_id,)).first() or {}
                raise SagaBusyError(saga_id, found.get("owner"), found.get("leased_until"))

        await self._db.run_steps(steps)

    async def renew(self, saga_id: str, owner: str, lease: float) -> bool:
        """See the contract."""

        def steps() -> Steps[bool]:
            now = yield from lease_now(self._db.dialect)
            renewed = yield RENEW, (now + lease, saga_id, owner)
            return renewed.row_count == 1

        return await self._db.run_steps(steps)

    async def release(self, saga_id: str, owner: str) -> None:
        """See the contract."""
        await self._db.execute(RELEASE, (saga_id, owner))

    async def unfinished(self, *, limit: int = 100) -> Sequence[StoredSaga]:
        """See the contract."""

        def steps() -> Steps[list[StoredSaga]]:
            now = yield from lease_now(self._db.dialect)
            found = yield UNFINISHED, (now, limit)
            return [_stored(row) for row in found.rows]

        return await self._db.run_steps(steps)


def _stored(row: Mapping[str, Any]) -> StoredSaga:
    return StoredSaga(
        saga_id=row["saga_id"],
        state=SagaState(row["state"]),
        data=json.loads(row["data"]),
        owner=row["owner"],
        leased_until=row["leased_until"],
    )
