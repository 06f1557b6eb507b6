"""Finished batches in a database, one row each, append only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from attrs import frozen

from lexigram import clock
from lexigram.contracts.workflow.errors import BulkOperationBusyError
from lexigram.leasing import Coalescer
from lexigram.sql.database import Database
from lexigram.sql.locks import SqlResourceLocks
from lexigram.sql.steps import Steps

# --- statements, the same on both databases, all by primary key ---

BEGIN = """
INSERT INTO lexigram_bulk_operations (operation_id, batch_size, created_at) VALUES (?, ?, ?)
ON CONFLICT (operation_id) DO NOTHING"""

FIND = "SELECT batch_size FROM lexigram_bulk_operations WHERE operation_id = ?"

# A batch is marked again only when failed items of it were taken up.
MARK = """
INSERT INTO lexigram_bulk_batches (operation_id, batch_id, failed) VALUES (?, ?, ?)
ON CONFLICT (operation_id, batch_id) DO UPDATE SET failed = excluded.failed"""

FINISHED = """
SELECT batch_id, failed FROM lexigram_bulk_batches
WHERE operation_id = ? AND batch_id >= ? AND batch_id <= ?"""

CLEAR_BATCHES = "DELETE FROM lexigram_bulk_batches WHERE operation_id = ?"
CLEAR = "DELETE FROM lexigram_bulk_operations WHERE operation_id = ?"


class SqlBulkCheckpoints:
    """Implements ``LeasingBulkCheckpointStoreProtocol`` on a ``Database``.

    Batches that finish at the same moment share one transaction. A lease is a resource lock.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self._locks = SqlResourceLocks(database)
        self._marks: Coalescer[_Mark, None] = Coalescer(self._write)

    async def begin(self, operation_id: str, batch_size: int) -> int:
        """See the contract."""

        def steps() -> Steps[int]:
            yield BEGIN, (operation_id, batch_size, clock.timestamp())
            found = yield FIND, (operation_id,)
            return int(found.rows[0]["batch_size"])

        return await self._db.run_steps(steps)

    async def mark(self, operation_id: str, batch_id: int, failed: tuple[int, ...] = ()) -> None:
        """See the contract."""
        item = _Mark(operation_id, batch_id, json.dumps(failed))
        if self._db.in_transaction:
            # The caller's own transaction decides, so it cannot be shared with others.
            await self._write([item])
        else:
            await self._marks.add(item)

    async def finished(
        self, operation_id: str, first: int, last: int
    ) -> Mapping[int, tuple[int, ...]]:
        """See the contract."""
        found = await self._db.execute_query(FINISHED, (operation_id, first, last))
        return {row["batch_id"]: tuple(json.loads(row["failed"])) for row in found.rows}

    async def clear(self, operation_id: str) -> None:
        """See the contract."""

        def steps() -> Steps[None]:
            yield CLEAR_BATCHES, (operation_id,)
            yield CLEAR, (operation_id,)

        await self._db.run_steps(steps)

    async def claim(
        self, operation_id: str, owner: str, lease: float, *, take_over: bool = False
    ) -> None:
        """See the contract."""
        key = _lock_key(operation_id)
        if take_over:
            await self._locks.force_release(key, reason="a bulk operation is taken over")
        if await self._locks.acquire(key, owner, ttl=lease) is None:
            held = await self._locks.get(key)
            raise BulkOperationBusyError(operation_id, None if held is None else held.holder_id)

    async def renew(self, operation_id: str, owner: str, lease: float) -> bool:
        """See the contract."""
        return await self._locks.refresh(_lock_key(operation_id), owner, lease)

    async def release(self, operation_id: str, owner: str) -> None:
        """See the contract."""
        await self._locks.release(_lock_key(operation_id), owner)

    async def _write(self, marks: Sequence[_Mark]) -> Sequence[None]:
        def steps() -> Steps[None]:
            for mark in marks:
                yield MARK, (mark.operation_id, mark.batch_id, mark.failed)

        await self._db.run_steps(steps)
        return [None] * len(marks)


@frozen
class _Mark:
    operation_id: str
    batch_id: int
    failed: str


def _lock_key(operation_id: str) -> str:
    # Hashed: an id may be as long as the column of lock keys, which has to hold the prefix too.
    return f"bulk:{hashlib.sha256(operation_id.encode()).hexdigest()}"
