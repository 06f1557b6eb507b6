"""A sum over the files of a database, and the file beside it that remembers the sum."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from lexigram.ai.workers.vectors.locks import LOCK_SUFFIX

_PIECE = 1 << 20


def folder_checksum(folder: Path) -> str:
    """The sha256 over names and contents of all files, in the order of their names."""
    total = hashlib.sha256()
    for path in _files(folder):
        total.update(path.relative_to(folder).as_posix().encode() + b"\0")
        content = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                content.update(piece)
        total.update(content.digest())
    return total.hexdigest()


def folder_size(folder: Path) -> int:
    """Bytes of all its files."""
    return sum(path.stat().st_size for path in _files(folder))


def checksum_file(folder: Path) -> Path:
    """Where the sum of a database is remembered: ``{db_name}.sha256`` beside it."""
    return folder.with_name(f"{folder.name}.sha256")


def write_checksum(folder: Path) -> str:
    """Remember the sum of a database as it is now, readable by ``sha256sum``-like eyes."""
    total = folder_checksum(folder)
    checksum_file(folder).write_text(f"{total}  {folder.name}\n", encoding="ascii")
    return total


def read_checksum(folder: Path) -> str | None:
    """The remembered sum; None when there is none."""
    try:
        words = checksum_file(folder).read_text(encoding="ascii").split()
    except FileNotFoundError:
        return None
    return words[0] if words else ""


def _files(folder: Path) -> Iterator[Path]:
    # Locks are no data, and change with every writer.
    found = (path for path in folder.rglob("*") if path.is_file())
    return iter(sorted(path for path in found if path.suffix != LOCK_SUFFIX))
