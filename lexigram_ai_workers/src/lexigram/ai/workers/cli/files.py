"""Which files below the given paths are to be ingested, their hashes, and why others cannot be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from attrs import frozen

from lexigram.ai.workers.document_ingestion.contents import content_hash_of
from lexigram.ai.workers.document_ingestion.errors import (
    DocumentMissingError,
    DocumentOutsideRootError,
    DocumentTooLargeError,
    DocumentUnreadableError,
    IngestionInputError,
)

_READ_BYTES = 1024 * 1024


@frozen(kw_only=True)
class FoundFile:
    """A file as it was when it was looked at."""

    # absolute; links are not followed, so that it is what the user sees
    path: str
    hash: str
    size: int
    changed_ns: int


@frozen(kw_only=True)
class BadFile:
    """A file that cannot be ingested, or a folder that cannot be looked into."""

    path: str
    # where it came to its end: find, or a step
    step: str
    # the type of the error, and its text
    error: str
    reason: str


@frozen(kw_only=True)
class Found:
    """What lies below the given paths."""

    files: Sequence[FoundFile]
    bad: Sequence[BadFile]


def find_files(
    roots: Sequence[str],
    *,
    include: Sequence[str] = (),
    allowed_roots: Sequence[str] = (),
    max_bytes: int,
    known: dict[str, FoundFile] | None = None,
) -> Found:
    """Read and hash everything below ``roots``; names that begin with a dot only when given.

    Links are followed as long as they stay below one of the roots, or of ``allowed_roots`` when
    there are any. A folder that cannot be read is bad too. A file that is in ``known`` with its size and time is not read again. For a
    thread: it reads files.
    """
    known = known or {}
    allowed = [os.path.realpath(root) for root in (allowed_roots or roots)]
    files: dict[str, FoundFile] = {}
    bad: dict[str, BadFile] = {}

    def refuse(name: str, error: IngestionInputError) -> None:
        kind = type(error).__name__
        bad[name] = BadFile(path=name, step="find", error=kind, reason=error.message)

    def refuse_folder(error: OSError) -> None:
        name = str(error.filename)
        refuse(name, DocumentUnreadableError(name, error.strerror or str(error)))

    for path in _paths(roots, include, refuse_folder):
        name = str(path)
        if name in files or name in bad:
            continue
        try:
            files[name] = _looked_at(path, allowed, max_bytes, known.get(name))
        except IngestionInputError as error:
            refuse(name, error)
    return Found(files=list(files.values()), bad=list(bad.values()))


def absolute(path: str | Path) -> str:
    """The same for every way to write it."""
    return os.path.abspath(path)  # noqa: PTH100 - links stay as they are named


def shown(path: str) -> str:
    """As seen from here, where that is shorter."""
    return min((path, os.path.relpath(path)), key=len)


def is_below(path: str, root: str) -> bool:
    """True for the root itself too."""
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _paths(
    roots: Sequence[str], include: Sequence[str], refuse: Callable[[OSError], None]
) -> Iterator[Path]:
    for root in map(Path, roots):
        if not root.is_dir():
            yield root
            continue
        for place, folders, names in os.walk(root, onerror=refuse):
            folder = Path(place)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            # A link to a folder is not walked into, but shall be heard of when it leads out.
            linked = [name for name in folders if (folder / name).is_symlink()]
            for name in sorted([*names, *linked]):
                if not name.startswith(".") and _is_wanted(name, include):
                    yield folder / name


def _is_wanted(name: str, include: Sequence[str]) -> bool:
    return not include or any(fnmatch(name, pattern) for pattern in include)


def _looked_at(
    path: Path, allowed: Sequence[str], max_bytes: int, known: FoundFile | None
) -> FoundFile:
    name = str(path)
    if any(0xD800 <= ord(sign) <= 0xDFFF for sign in name):
        raise DocumentUnreadableError(repr(name), "its name is no text in UTF-8")
    real = path.resolve()
    if not any(is_below(str(real), root) for root in allowed):
        raise DocumentOutsideRootError(name, str(real), allowed)
    try:
        facts = real.stat()
        if not real.is_file():
            raise DocumentUnreadableError(
                name, "it is a link to a folder" if real.is_dir() else "it is no plain file"
            )
        if facts.st_size > max_bytes:
            raise DocumentTooLargeError(name, facts.st_size, max_bytes)
        state = (facts.st_size, facts.st_mtime_ns)
        is_known = known is not None and (known.size, known.changed_ns) == state
        digest = known.hash if known is not None and is_known else _hash(real)
    except FileNotFoundError as error:
        raise DocumentMissingError(name) from error
    except OSError as error:
        raise DocumentUnreadableError(name, error.strerror or str(error)) from error
    return FoundFile(path=name, hash=digest, size=facts.st_size, changed_ns=facts.st_mtime_ns)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return content_hash_of(iter(partial(file.read, _READ_BYTES), b""))
