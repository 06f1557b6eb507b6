"""The files of an open database are those at its path: deleted or replaced ones are detected."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from lexigram.sql.errors import DatabaseFileLostError

# One stat of the database file for each transaction: 2 µs where the smallest write with its hop to
# the thread takes 30 µs of processor time, so that no write after the deletion reports success (a
# check every 10 ms would cost nothing, and would). All three files would be 7 µs: the other two are
# checked once a second, as their rows are lost only when the last connection is closed.
_SIDE_SECONDS: Final = 1.0
_SIDES: Final = ("-wal", "-shm")


class _Identity(NamedTuple):
    device: int
    number: int


class OpenFiles:
    """The identities that the files had when a connection had opened them; of one thread."""

    def __init__(self, file: Path) -> None:
        self._file = str(file)
        self._opened = _identity(self._file)
        # SQLite keeps them as long as any connection is open. Without WAL there are none.
        sides = {self._file + end: _identity(self._file + end) for end in _SIDES}
        self._sides = {path: found for path, found in sides.items() if found is not None}
        self._next_sides = time.monotonic() + _SIDE_SECONDS

    def check(self) -> None:
        """Raise DatabaseFileLostError unless the path still leads to the file that is open."""
        if (found := _identity(self._file)) != self._opened:
            raise _build_lost_error(self._file, self._file, found)
        if self._sides and time.monotonic() >= self._next_sides:
            self._check_sides()
            self._next_sides = time.monotonic() + _SIDE_SECONDS

    def _check_sides(self) -> None:
        for path, opened in self._sides.items():
            if (found := _identity(path)) != opened:
                raise _build_lost_error(self._file, path, found)


def _identity(path: str) -> _Identity | None:
    """None where there is no file. Raises DatabaseFileLostError where nobody can say."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path takes four times as long
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DatabaseFileLostError(
            f"{path} cannot be reached any more: {error.strerror}",
            details={"database": path, "file": path},
            hint="make the folder reachable again; nothing was written meanwhile",
        ) from error
    return _Identity(found.st_dev, found.st_ino)


def _build_lost_error(database: str, path: str, found: _Identity | None) -> DatabaseFileLostError:
    event = "deleted" if found is None else "replaced by another file"
    return DatabaseFileLostError(
        f"{path} was {event} while it was open",
        details={"database": database, "file": path, "event": event},
        hint="stop every process that has the database open, put the right file at its place"
        " (without -wal and -shm of another one), and start them again",
    )
