"""Ledgers of ingestions: what was ingested from which paths, stored as blobs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
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
