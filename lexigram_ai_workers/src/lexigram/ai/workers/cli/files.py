"""Find the files to ingest below some paths, hash them, and report unreadable files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from attrs import frozen

from lexigram.ai.workers.document_ingestion.content_hash import content_hash_of
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
    """A file with its hash, size and time of change."""

    # absolute, with links unresolved, as the user sees it
    path: str
    hash: str
    size: int
    changed_ns: int


@frozen(kw_only=True)
class FailedFile:
    """A file that cannot be ingested, or a folder that cannot be read."""

    path: str
    # the step that failed: find, or a step of the workflow
    step: str
    # type and text of the error
    error: str
    reason: str


@frozen(kw_only=True)
class FileScan:
    """The files below some paths."""

    files: Sequence[FoundFile]
    bad: Sequence[FailedFile]


def find_files(
    roots: Sequence[str],
    *,
    include: Sequence[str] = (),
    allowed_roots: Sequence[str] = (),
    max_bytes: int,
    known: dict[str, FoundFile] | None = None,
) -> FileScan:
    """Find and hash all files below ``roots``; hidden files only when given explicitly.

    Links are followed if their target is below one of the roots, or of ``allowed_roots`` if there
    are any. Unreadable folders are reported as failed. A file in ``known`` with the same size and
    time is not read again. Blocks: call it in a thread.
    """
    known = known or {}
    allowed = [os.path.realpath(root) for root in (allowed_roots or roots)]
    files: dict[str, FoundFile] = {}
    bad: dict[str, FailedFile] = {}

    def refuse(name: str, error: IngestionInputError) -> None:
        kind = type(error).__name__
        bad[name] = FailedFile(path=name, step="find", error=kind, reason=error.message)

    def refuse_folder(error: OSError) -> None:
        name = str(error.filename)
        refuse(name, DocumentUnreadableError(name, error.strerror or str(error)))

    for path in _paths(roots, include, refuse_folder):
        name = str(path)
        if name in files or name in bad:
            continue
        try:
            files[name] = _inspect_file(path, allowed, max_bytes, known.get(name))
        except IngestionInputError as error:
            refuse(name, error)
    return FileScan(files=list(files.values()), bad=list(bad.values()))


def make_absolute(path: str | Path) -> str:
    """Make a path absolute without resolving links."""
    return os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links


def shorten_path(path: str) -> str:
    """Return the relative path if that is shorter."""
    return min((path, os.path.relpath(path)), key=len)


def is_below(path: str, root: str) -> bool:
    """True for paths below the root, and for the root itself."""
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
            # A link to a folder is not walked, but reported if its target is outside.
            linked = [name for name in folders if (folder / name).is_symlink()]
            for name in sorted([*names, *linked]):
                if not name.startswith(".") and _is_wanted(name, include):
                    yield folder / name


def _is_wanted(name: str, include: Sequence[str]) -> bool:
    return not include or any(fnmatch(name, pattern) for pattern in include)


def _inspect_file(
    path: Path, allowed: Sequence[str], max_bytes: int, known: FoundFile | None
) -> FoundFile:
    name = str(path)
    if any(0xD800 <= ord(sign) <= 0xDFFF for sign in name):
        raise DocumentUnreadableError(repr(name), "the name is not valid UTF-8")
    try:
        real = path.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError before Python 3.13
        raise DocumentUnreadableError(name, "it is a link to itself") from error
    if not any(is_below(str(real), root) for root in allowed):
        raise DocumentOutsideRootError(name, str(real), allowed)
    try:
        facts = real.stat()
        if not real.is_file():
            raise DocumentUnreadableError(
                name, "it is a link to a folder" if real.is_dir() else "it is not a regular file"
            )
        if facts.st_size > max_bytes:
            raise DocumentTooLargeError(name, facts.st_size, max_bytes)
        state = (facts.st_size, facts.st_mtime_ns)
        is_known = known is not None and (known.size, known.changed_ns) == state
        digest = known.hash if known is not None and is_known else _hash(real)
    except IngestionInputError:  # some are also OSErrors
        raise
    except FileNotFoundError as error:
        raise DocumentMissingError(name) from error
    except OSError as error:
        is_loop = error.errno == errno.ELOOP  # Python 3.13 resolves such a link to itself
        reason = "it is a link to itself" if is_loop else error.strerror or str(error)
        raise DocumentUnreadableError(name, reason) from error
    return FoundFile(path=name, hash=digest, size=facts.st_size, changed_ns=facts.st_mtime_ns)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return content_hash_of(iter(partial(file.read, _READ_BYTES), b""))
