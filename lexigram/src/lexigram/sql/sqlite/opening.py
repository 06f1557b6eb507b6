"""Opens a SQLite file; the first of several processes prepares it, the others wait."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lexigram.sql.config import SqlConfig

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_WAL_PAUSE = 0.01  # the WAL switch answers BUSY at once, whatever busy_timeout says


class QuietConnection(sqlite3.Connection):
    """A connection whose transactions are ended by us alone, not by SQLAlchemy's bookkeeping."""

    def commit(self) -> None:
        """Nothing: COMMIT is sent as a statement, by the owner of the transaction."""

    def rollback(self) -> None:
        """Nothing, for the same reason."""


def open_connection(
    file: Path | None, config: SqlConfig, *, reader: bool = False
) -> QuietConnection:
    """A connection of the calling thread with all settings made. Raises sqlite3.Error."""
    connection = sqlite3.connect(
        file or ":memory:",
        timeout=config.busy_timeout,
        isolation_level=None,  # the driver never begins by itself
        factory=QuietConnection,
        cached_statements=256,
    )
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA synchronous = {config.synchronous.value}")
        if reader:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(file: Path, config: SqlConfig) -> None:
    """Switch a file to WAL, permanently, for all processes. Raises sqlite3.Error, OSError."""
    with exclusive(file):
        connection = open_connection(file, config)
        try:
            deadline = time.monotonic() + max(config.busy_timeout, _WAL_PAUSE)
            while not _is_wal(connection, deadline):
                time.sleep(_WAL_PAUSE)
        finally:
            connection.close()


@contextlib.contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Hold the lock file beside a database; a killed holder gives it back by dying."""
    with file.with_name(f"{file.name}.lock").open("a+b") as handle:
        _lock(handle.fileno())
        yield  # closing the file gives the lock back


def take_lock(file: Path) -> BinaryIO | None:
    """The lock for changing tables, to be closed; None while another process has it.

    Not the lock of ``prepare``: who opens the file must not wait for a long migration there.
    """
    handle = file.with_name(f"{file.name}.migrate.lock").open("a+b")
    try:
        _lock(handle.fileno(), wait=False)
    except OSError as error:
        handle.close()
        if error.errno in {errno.EACCES, errno.EAGAIN, errno.EDEADLK}:
            return None
        raise
    return handle


def _is_wal(connection: sqlite3.Connection, deadline: float) -> bool:
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        busy = error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
        if not busy or time.monotonic() > deadline:
            raise
        return False
    return True


def _lock(descriptor: int, *, wait: bool = True) -> None:
    if sys.platform == "win32":
        msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
