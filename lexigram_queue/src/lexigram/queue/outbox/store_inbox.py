"""Which messages an exactly-once group has handled: the statements of the inbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lexigram import clock

if TYPE_CHECKING:
    from lexigram.sql import Database

PRUNED_AT_ONCE: Final = 1000  # rows

# One row per message; what comes back is new. On PostgreSQL a second handler of the message waits
# here until the transaction of the first one ends, and then finds the row.
NOTE: Final = """
INSERT INTO lexigram_bus_inbox (group_name, message_id, handled_at) VALUES {rows}
ON CONFLICT (group_name, message_id) DO NOTHING RETURNING message_id"""
# From the old end, by ix_..._handled_at.
PRUNE: Final = """
DELETE FROM lexigram_bus_inbox WHERE (group_name, message_id) IN (
    SELECT group_name, message_id FROM lexigram_bus_inbox
    WHERE handled_at < ? ORDER BY handled_at LIMIT ?)"""


class InboxStore:
    """Rows of ``lexigram_bus_inbox``; times are those of the machine that handles."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def note(self, group: str, ids: Sequence[str]) -> set[str]:
        """Write the ids in the transaction of this task; those that were not there before."""
        now = clock.timestamp()
        wanted = sorted(set(ids))  # in order: two batches must not wait for each other
        statement = NOTE.replace("{rows}", ", ".join(["(?, ?, ?)"] * len(wanted)))
        params = [value for one in wanted for value in (group, one, now)]
        found = await self._database.execute(statement, params)
        return {row["message_id"] for row in found.rows}

    async def prune(self, older_than: float) -> int:
        """Forget what was handled more than so many seconds ago; how many."""
        gone, last = 0, PRUNED_AT_ONCE
        while last == PRUNED_AT_ONCE:
            params = (clock.timestamp() - older_than, PRUNED_AT_ONCE)
            last = (await self._database.execute(PRUNE, params)).row_count
            gone += last
        return gone
