"""Which paths a blob may have: those that mean the same in every store and lead out of none."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from anyio import to_thread

from lexigram.contracts.data.blobs import BlobPathError

# Where writers put what is not finished; nobody else's business.
UPLOADS = ".uploads"

_LONGEST_PATH = 1024  # bytes: the limit of S3
_LONGEST_NAME = 255  # bytes: the limit of most file systems
_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_path(path: str) -> None:
    """Raise BlobPathError, naming the path, unless a blob may have it."""
    fault = _fault(path, path.split("/")) if path else "it is empty"
    if fault is not None:
        raise path_error(path, fault)


def check_prefix(prefix: str) -> None:
    """The same for the beginning of a path: it may be empty, or end with ``/``."""
    if prefix:
        fault = _fault(prefix, prefix.removesuffix("/").split("/"))
        if fault is not None:
            raise path_error(prefix, fault)


def path_error(path: str, fault: str) -> BlobPathError:
    """The error for a path that a blob cannot have."""
    return BlobPathError(
        f"{path!r} cannot be the path of a blob: {fault}",
        details={"path": path},
        hint="use a relative path with /, such as 'reports/2026/may.pdf'",
    )


def _fault(path: str, names: list[str]) -> str | None:
    if path.startswith("/"):
        return "it is absolute"
    if _CONTROL.search(path):
        return "it has a NUL or another control character"
    if "\\" in path:
        return "it has a backslash"
    if _DRIVE.match(path):
        return "it begins with a drive"
    if path != path.strip():
        return "it begins or ends with a blank"  # opendal would cut it off
    return _fault_of_names(names) or _fault_of_length(path, names)


def _fault_of_names(names: list[str]) -> str | None:
    if ".." in names:
        return "it has '..'"
    if "." in names:
        return "it has '.'"
    if "" in names:
        return "it has an empty part"
    if names[0] == UPLOADS:
        return f"{UPLOADS} is kept for blobs that are being written"
    return None


def _fault_of_length(path: str, names: list[str]) -> str | None:
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "it cannot be written as UTF-8"
    if size > _LONGEST_PATH:
        return f"it is longer than {_LONGEST_PATH} bytes"
    if any(len(name.encode()) > _LONGEST_NAME for name in names):
        return f"a part of it is longer than {_LONGEST_NAME} bytes"
    return None


# --- links in the folder of a store ---


class Folder:
    """Looks at links before the store follows them.

    A process that can write into the folder itself could still swap a name for a link between the
    look and the use: this guards against links that lie there, not against such a race.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)

    async def check(self, path: str) -> None:
        """Raise BlobPathError when the path leaves the folder by a link."""
        if await to_thread.run_sync(self._leaves, path):
            raise path_error(path, "a link leads it out of the store")

    async def keep(self, paths: Sequence[str]) -> list[bool]:
        """For each path, whether it stays inside; in one hop for all."""
        return await to_thread.run_sync(lambda: [not self._leaves(path) for path in paths])

    def _leaves(self, path: str) -> bool:
        real = os.path.realpath(os.path.join(self.root, path))  # noqa: PTH118 - resolve() raises for a loop
        return os.path.commonpath([self.root, real]) != self.root
