"""Every statement of the locks, in the dialect both databases share."""

from __future__ import annotations

# Before the key of a lock that is waited for: a row of its own that marks it. Those who take locks
# one right after the other look for it and let him in.
WAITING = "waiting:"

# Primary key; no lock. The common answer "it is taken" costs nothing more than this.
FIND = """
SELECT resource_key, holder_id, holder_kind, holder_meta, fence, acquired_at, expires_at
FROM lexigram_locks WHERE resource_key = ? AND expires_at > ?"""

# Primary key; row lock. The fence stays.
EXTEND = """
UPDATE lexigram_locks SET expires_at = ?
WHERE resource_key = ? AND holder_id = ? AND expires_at > ?"""

# Row lock on the one row until the commit: the one that is granted a lock has its number before the
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
