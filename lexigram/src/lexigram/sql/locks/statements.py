"""Every statement of the locks, in the dialect both databases share."""

from __future__ import annotations

# Two processes that create the tables at once: PostgreSQL's IF NOT EXISTS is not enough, the
# second one fails on the catalogue's own unique index. The lock ends with the transaction.
LOCK_SCHEMA = "SELECT pg_advisory_xact_lock(5282041503)"

CREATE_LOCKS = """
CREATE TABLE IF NOT EXISTS lexigram_locks (
    resource_key VARCHAR(255) NOT NULL PRIMARY KEY,
    holder_id VARCHAR(255) NOT NULL,
    holder_kind VARCHAR(32) NOT NULL,
    holder_meta TEXT NOT NULL,
    fence BIGINT NOT NULL,
    acquired_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL
)"""

# For the sweep alone; all other statements go by the primary key.
CREATE_LOCKS_EXPIRY = (
    "CREATE INDEX IF NOT EXISTS ix_lexigram_locks_expires_at ON lexigram_locks (expires_at)"
)

# One row for all keys. It outlives the locks, so fences go on after a sweep.
CREATE_FENCE = """
CREATE TABLE IF NOT EXISTS lexigram_lock_fence (
    id INTEGER NOT NULL PRIMARY KEY,
    last BIGINT NOT NULL
)"""
FIRST_FENCE = "INSERT INTO lexigram_lock_fence VALUES (1, 0) ON CONFLICT (id) DO NOTHING"

# Primary key; no lock. The common answer "somebody has it" costs nothing more than this.
FIND = """
SELECT resource_key, holder_id, holder_kind, holder_meta, fence, acquired_at, expires_at
FROM lexigram_locks WHERE resource_key = ? AND expires_at > ?"""

# Primary key; row lock. The fence stays.
EXTEND = """
UPDATE lexigram_locks SET expires_at = ?
WHERE resource_key = ? AND holder_id = ? AND expires_at > ?"""

# Row lock on the one row until the commit: whoever is granted a lock has its number before the
# next one is given out. That is why fences grow in the order of grants.
NEXT_FENCE = "UPDATE lexigram_lock_fence SET last = last + 1 WHERE id = 1 RETURNING last"

# Primary key. Takes a free or expired row, or none: RETURNING is then empty.
TAKE = """
INSERT INTO lexigram_locks
    (resource_key, holder_id, holder_kind, holder_meta, fence, acquired_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (resource_key) DO UPDATE SET
    holder_id = excluded.holder_id, holder_kind = excluded.holder_kind,
    holder_meta = excluded.holder_meta, fence = excluded.fence,
    acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
WHERE lexigram_locks.expires_at <= excluded.acquired_at
RETURNING resource_key, holder_id, holder_kind, holder_meta, fence, acquired_at, expires_at"""

# Primary key; row lock. An expired lock is not given back: it is not the holder's any more.
RELEASE = "DELETE FROM lexigram_locks WHERE resource_key = ? AND holder_id = ? AND expires_at > ?"

# Primary key; row lock. RETURNING is for the log.
FORCE_RELEASE = """
DELETE FROM lexigram_locks WHERE resource_key = ? AND expires_at > ?
RETURNING holder_id, holder_kind, fence"""

# Index on expires_at; row locks on what is removed.
SWEEP = "DELETE FROM lexigram_locks WHERE expires_at <= ?"
