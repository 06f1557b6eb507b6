"""Locks in a database, fenced by a number that only grows."""

from lexigram.sql.locks.locks import SqlResourceLocks

__all__ = ["SqlResourceLocks"]
