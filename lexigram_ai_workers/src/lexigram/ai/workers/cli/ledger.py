"""Ledgers of ingestions: what was ingested from which paths and by which process, as blobs."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, define, field

from lexigram.contracts.data.blobs import BlobNotFoundError, BlobStoreProtocol

_FOLDER = "ingest"


@define(kw_only=True)
class Ledger:
    """The last ingestion of a set of paths, and the indexed files.

    A ledger is an optimization: its entries are verified against the index. Without a ledger all
    files go through durable runs again, which skip finished steps.
    """

    roots: Sequence[str]
    # workflow, parameters, collection, globs of file names
    options: Sequence[str | None] = ()
    # the group of the last ingestion and the hash of its documents; None before the first
    group: int | None = None
    key: str = ""
    # the process of the running ingestion, see processes.this_process(); None when it finished
    process: dict[str, Any] | None = None
    # time of the last heartbeat, for processes on other machines
    heartbeat_at: float = 0.0
    # start of the last ingestion in seconds since 1970, number of submitted files, and number of
    # unchanged files
    began: float = 0.0
    found: int = 0
    unchanged: int = 0
    # path -> reason of files that could not be submitted
    refused: dict[str, str] = field(factory=dict[str, str])
    # hash of workflow, parameters, model and collection
    settings_key: str = ""
    # path -> content hash in the index
    files: dict[str, str] = field(factory=dict[str, str])

    @property
    def collection(self) -> str | None:
        """The requested collection; None: as in the parameter set."""
        return self.options[2] if len(self.options) > 2 else None


class Ledgers:
    """Reads and writes ledgers; there is one per set of paths and options."""

    def __init__(self, blobs: BlobStoreProtocol) -> None:
        self._blobs = blobs

    async def read(self, roots: Sequence[str], options: Sequence[str | None] = ()) -> Ledger:
        """Return the ledger; an empty one if it is missing or unreadable."""
        fresh = Ledger(roots=sorted(roots), options=list(options))
        try:
            data = await self._blobs.download(_path(fresh))
        except BlobNotFoundError:
            return fresh
        return _read(data) or fresh

    async def write(self, ledger: Ledger) -> None:
        """Write a ledger, replacing the old one."""
        await self._blobs.upload(_path(ledger), json.dumps(asdict(ledger)).encode())

    async def all(self) -> AsyncIterator[Ledger]:
        """Yield every ledger, unordered."""
        async for info in self._blobs.list(f"{_FOLDER}/"):
            ledger = _read(await self._blobs.download(info.path))
            if ledger is not None:
                yield ledger


def _path(ledger: Ledger) -> str:
    name = json.dumps([sorted(ledger.roots), list(ledger.options)])
    return f"{_FOLDER}/{hashlib.sha256(name.encode()).hexdigest()}"


def _read(data: bytes) -> Ledger | None:
    """Parse a ledger; None for one of another version."""
    try:
        found: Mapping[str, Any] = json.loads(data)
        return Ledger(**found)
    except (ValueError, TypeError):
        return None


# --- the process of an ingestion ---

# Fields of /proc/PID/stat after the process name, which is in brackets.
_STATE, _START_TIME = 0, 19


def this_process() -> dict[str, Any]:
    """Return host, pid and start time of this process. Blocks: it may read a file."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "started": _read_start_time(pid)}


def is_elsewhere(process: Mapping[str, Any]) -> bool:
    """True for a process of another machine or container."""
    return bool(process["host"] != socket.gethostname())


def has_ended(process: Mapping[str, Any]) -> bool:
    """True when the process has ended; False for other machines. Blocks: it may read a file."""
    if is_elsewhere(process):
        return False
    if process["started"] is not None:
        return bool(_read_start_time(process["pid"]) != process["started"])
    try:
        os.kill(process["pid"], 0)  # signal 0 only checks
    except ProcessLookupError:
        return True
    except OSError:  # the process belongs to another user
        return False
    return False


def _read_start_time(pid: int) -> str | None:
    """Return the start time, as pids are reused; None if unknown."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # no such process, or no /proc
        return None
    fields = facts.rpartition(")")[2].split()
    return None if fields[_STATE] == "Z" else fields[_START_TIME]
