"""Transitions kept in a database, one row each, append only."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lexigram import clock
from lexigram.contracts.data.sql.database import DatabaseProviderProtocol
from lexigram.contracts.workflow.errors import StateVersionConflictError
from lexigram.contracts.workflow.types import StateTransitionRecord
from lexigram.workflow.state.exceptions import StateDefinitionError

DEFAULT_TABLE = "workflow_state_transitions"

# --- statements, the same on both databases; primary key (machine_id, version) ---

# The version before must be there, or be 0: no gap. The one itself is kept free by the key: of
# two who insert it at once the second waits for the first and then writes nothing.
APPEND = """
INSERT INTO {table} (machine_id, version, from_state, event, to_state, transitioned_at)
SELECT CAST(? AS varchar), CAST(? AS bigint), CAST(? AS varchar), CAST(? AS varchar),
    CAST(? AS varchar), CAST(? AS double precision)
WHERE CAST(? AS bigint) = 0 OR EXISTS (
    SELECT 1 FROM {table} WHERE machine_id = ? AND version = ?)
ON CONFLICT (machine_id, version) DO NOTHING"""

LOAD = "SELECT * FROM {table} WHERE machine_id = ? ORDER BY version"

# Backwards in the key: one row is read.
CURRENT = "SELECT max(version) AS version FROM {table} WHERE machine_id = ?"

# For a table with a name of its own; migrations make the usual one.
CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
    machine_id VARCHAR(255) NOT NULL,
    version BIGINT NOT NULL,
    from_state VARCHAR(255) NOT NULL,
    event VARCHAR(255) NOT NULL,
    to_state VARCHAR(255) NOT NULL,
    transitioned_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (machine_id, version)
)"""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class DatabaseStatePersistence:
    """Implements ``StatePersistenceProtocol`` on SQLite and PostgreSQL.

    ``provider`` is a ``lexigram.sql.Database`` or anything with its contract. Inside a
    transaction of the caller an append joins that.
    """

    def __init__(self, provider: DatabaseProviderProtocol, table_name: str = DEFAULT_TABLE) -> None:
        if not _NAME.fullmatch(table_name):
            raise StateDefinitionError(
                f"{table_name!r} cannot be the name of a table",
                hint="use up to 63 of a-z, A-Z, 0-9 and _, and do not begin with a digit",
            )
        self._db = provider
        self._append = APPEND.format(table=table_name)
        self._load = LOAD.format(table=table_name)
        self._current = CURRENT.format(table=table_name)
        self._create = CREATE_TABLE.format(table=table_name)

    async def create_table(self) -> None:
        """Make the table if it is missing; only for a name of your own."""
        await self._db.execute(self._create)

    async def append_transition(
        self, machine_id: str, from_state: str, event: str, to_state: str, expected_version: int
    ) -> int:
        """See the contract."""
        version = expected_version + 1
        row = (machine_id, version, from_state, event, to_state, clock.timestamp())
        written = await self._db.execute(
            self._append, (*row, expected_version, machine_id, expected_version)
        )
        if written.row_count == 0:
            actual = await self.get_current_version(machine_id)
            raise StateVersionConflictError(machine_id, expected_version, actual)
        return version

    async def load_transitions(self, machine_id: str) -> Sequence[StateTransitionRecord]:
        """See the contract."""
        found = await self._db.execute_query(self._load, (machine_id,))
        return [StateTransitionRecord(**row) for row in found.rows]

    async def get_current_version(self, machine_id: str) -> int:
        """See the contract."""
        found = await self._db.execute_query(self._current, (machine_id,))
        return found.rows[0]["version"] or 0
