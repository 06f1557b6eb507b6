"""Writes to one LanceDB table: gathered into few commits, one writer at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
from anyio.to_thread import run_sync
from attrs import frozen

from lexigram.ai.workers.vectors.filters import ids_in, matches, where
from lexigram.ai.workers.vectors.lancedb_rows import AsyncTable, rows_of
from lexigram.ai.workers.vectors.locks import WriterLock
from lexigram.ai.workers.vectors.records import Vectors
from lexigram.contracts.core.lock import LockLostError
from lexigram.contracts.data.vector import VectorRecord
from lexigram.observability import get_logger
from lexigram.sql.leasing import Coalescer

logger = get_logger(__name__)

# Rows from which on they are made in a thread: 1,000 take some 20 ms of the event loop.
MANY = 250
_CALLS_PER_COMMIT = 256
_IDS_PER_CONDITION = 1_000


@frozen(kw_only=True)
class Write:
    """One call of upsert or replace: checked records, each id once."""

    records: Sequence[VectorRecord]
    vectors: Vectors
    # replace(): what matches and is not among the records goes
    instead_of: Mapping[str, Any] | None = None


class LanceWriter:
    """``await writer.write(Write(...))``: done when a commit with it is durable.

    Calls that come while a commit runs are gathered into the next one: a commit costs about 8 ms
    whether it has 1 row or 100 (batch 1: 146 rows/s, 100: 12.6k, 10k: 43k; delete and add instead
    of merge: 210, 7.8k, 28k). Nothing is compacted here: see LanceVectorStore.vacuum.
    """

    def __init__(
        self, table: AsyncTable, lock: WriterLock, *, max_wait: float | None, shared: bool
    ) -> None:
        self._table = table
        self._lock = lock
        self._max_wait = max_wait
        # The lock can be lost while its holder sleeps: then two may have committed.
        self.shared = shared
        self._commits: Coalescer[Write, int] = Coalescer(self._commit, limit=_CALLS_PER_COMMIT)

    async def write(self, write: Write) -> int:
        """How many records were written."""
        return await self._commits.add(write)

    async def alone(self, work: Callable[[], Awaitable[int]]) -> int:
        """Do something else to the table while nobody writes; what it returns."""
        done = 0
        try:
            async with self._lock.held(self._max_wait):
                # To its end, even if the caller is cancelled or the lock lost: what LanceDB
                # began it finishes, and only after it can be told what there is.
                with anyio.CancelScope(shield=True):
                    done = await work()
        except LockLostError:
            logger.warning("lock lost while writing", table=self._table.name)
            await self._without_doubles()
        return done

    async def _commit(self, writes: Sequence[Write]) -> Sequence[int]:
        rows, vectors = gathered(writes)
        filters = [write.instead_of for write in writes if write.instead_of is not None]

        async def work() -> int:
            before = await self._latest()
            stale = await self._stale(filters, rows)
            commits = await self.merge(rows, vectors) + await self._remove(stale)
            return await self._latest() - before - commits if self.shared else 0

        # The table must have grown by exactly our commits. Else somebody wrote who had lost
        # the lock, or we had: LanceDB lets both through when they do not seem to meet.
        if await self.alone(work) != 0:
            await self._without_doubles()
        return [len(write.records) for write in writes]

    async def merge(self, rows: Mapping[str, VectorRecord], vectors: Vectors) -> int:
        """Write rows at once, for who holds the lock; how many commits it took."""
        if not rows:
            return 0
        given = (list(rows.values()), vectors, await self._table.schema())
        table = await run_sync(rows_of, *given) if len(rows) > MANY else rows_of(*given)
        builder = self._table.merge_insert("id")
        await builder.when_matched_update_all().when_not_matched_insert_all().execute(table)
        return 1

    async def _stale(
        self, filters: Sequence[Mapping[str, Any]], rows: Mapping[str, VectorRecord]
    ) -> list[str]:
        """Ids under the filters that the new rows do not have.

        Looked up first: merge_insert can delete what its source does not have in the same
        commit, but then it joins the whole table (50 ms instead of 11 ms at 60k rows).
        """
        if not filters:
            return []
        condition = " OR ".join(f"({where(wanted)})" for wanted in filters)
        found = await self._table.query().where(condition).select(["id"]).to_arrow()
        return [key for key in found["id"].to_pylist() if key not in rows]

    async def _remove(self, ids: list[str]) -> int:
        commits = 0
        for start in range(0, len(ids), _IDS_PER_CONDITION):
            await self._table.delete(ids_in(ids[start : start + _IDS_PER_CONDITION]))
            commits += 1
        return commits

    async def _latest(self) -> int:
        if not self.shared:
            return 0
        await self._table.checkout_latest()
        return int(await self._table.version())

    async def _without_doubles(self) -> None:
        """Keep one row of each id. Safe at any time under the lock."""
        removed = 0
        async with self._lock.held(self._max_wait):
            with anyio.CancelScope(shield=True):
                removed = await remove_doubles(self._table)
        if removed:
            logger.warning("rows written twice were removed", table=self._table.name, rows=removed)


def gathered(writes: Sequence[Write]) -> tuple[dict[str, VectorRecord], Vectors]:
    """The rows all writes leave, as if they came one after the other, and their vectors."""
    import numpy as np

    rows: dict[str, VectorRecord] = {}
    places: dict[str, tuple[Vectors, int]] = {}
    for write in writes:
        if write.instead_of is not None:
            for key in [k for k, row in rows.items() if matches(row.metadata, write.instead_of)]:
                del rows[key]
        for index, record in enumerate(write.records):
            rows[record.id] = record
            places[record.id] = (write.vectors, index)
    if len(writes) == 1 and len(rows) == len(writes[0].records):
        return rows, writes[0].vectors
    picked = [matrix[index] for matrix, index in (places[key] for key in rows)]
    return rows, np.asarray(picked, dtype=np.float32)


async def remove_doubles(table: AsyncTable) -> int:
    """Remove all but one row of every id; how many rows went."""
    found = await table.query().select(["id"]).with_row_id().to_arrow()
    seen: set[str] = set()
    extra: list[int] = []
    # From the last: the newest row of an id stays.
    pairs = list(zip(found["id"].to_pylist(), found["_rowid"].to_pylist(), strict=True))
    for key, row in sorted(pairs, key=lambda pair: pair[1], reverse=True):
        if key in seen:
            extra.append(row)
        seen.add(key)
    for start in range(0, len(extra), _IDS_PER_CONDITION):
        rows = ", ".join(map(str, extra[start : start + _IDS_PER_CONDITION]))
        await table.delete(f"_rowid IN ({rows})")
    return len(extra)
