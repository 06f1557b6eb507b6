"""Checksums of databases, and the files that store them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from lexigram.ai.workers.vectors.locks import LOCK_SUFFIX

_PIECE = 1 << 20


def folder_checksum(folder: Path) -> str:
    """Return the sha256 of names and contents of all files, sorted by name."""
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
    """Return the size of all files in bytes."""
    return sum(path.stat().st_size for path in _files(folder))


def checksum_file(folder: Path) -> Path:
    """Return the path of the checksum file, ``{db_name}.sha256`` beside the database."""
    return folder.with_name(f"{folder.name}.sha256")


def write_checksum(folder: Path) -> str:
    """Write the checksum of a database in the format of ``sha256sum``."""
    total = folder_checksum(folder)
    checksum_file(folder).write_text(f"{total}  {folder.name}\n", encoding="ascii")
    return total


def read_checksum(folder: Path) -> str | None:
    """Read the stored checksum; None if there is none."""
    try:
        words = checksum_file(folder).read_text(encoding="ascii").split()
    except FileNotFoundError:
        return None
    return words[0] if words else ""


def _files(folder: Path) -> Iterator[Path]:
    # Lock files are not data.
    found = (path for path in folder.rglob("*") if path.is_file())
    return iter(sorted(path for path in found if path.suffix != LOCK_SUFFIX))
