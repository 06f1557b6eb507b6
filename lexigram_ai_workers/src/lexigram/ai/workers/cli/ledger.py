"""What was ingested from which paths, kept beside the documents in the blob store."""

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
    """The last ingestion of some paths, and what of them is in the index.

    It only saves work: what it says is compared with the index before it is believed, and
    without it everything goes through durable runs again, which skip what is done.
    """

    roots: Sequence[str]
    # what else was asked for: workflow, parameters, collection, names of files
    asked: Sequence[str | None] = ()
    # the group of the last ingestion, and what names its documents; None before the first
    group: int | None = None
    key: str = ""
    # the process of the last one, as processes.this_process() names it; None when it came to its end
    process: dict[str, Any] | None = None
    # when the last one began, as seconds since 1970, and how many files it was about
    began: float = 0.0
    found: int = 0
    # files that never came into the group, by path: why
    refused: dict[str, str] = field(factory=dict[str, str])
    # what names the work that made the index: workflow, parameters, model, collection
    made_by: str = ""
    # path -> hash of its content in the index
    files: dict[str, str] = field(factory=dict[str, str])


class Ledgers:
    """Reads and writes them; one for each set of paths and what else is asked for."""

    def __init__(self, blobs: BlobStoreProtocol) -> None:
        self._blobs = blobs

    async def read(self, roots: Sequence[str], asked: Sequence[str | None] = ()) -> Ledger:
        """The ledger; an empty one when there is none, or it cannot be read any more."""
        fresh = Ledger(roots=sorted(roots), asked=list(asked))
        try:
            data = await self._blobs.download(_path(fresh))
        except BlobNotFoundError:
            return fresh
        return _read(data) or fresh

    async def write(self, ledger: Ledger) -> None:
        """Replace it."""
        await self._blobs.upload(_path(ledger), json.dumps(asdict(ledger)).encode())

    async def all(self) -> AsyncIterator[Ledger]:
        """Every ledger, in no order."""
        async for info in self._blobs.list(f"{_FOLDER}/"):
            ledger = _read(await self._blobs.download(info.path))
            if ledger is not None:
                yield ledger


def _path(ledger: Ledger) -> str:
    name = json.dumps([sorted(ledger.roots), list(ledger.asked)])
    return f"{_FOLDER}/{hashlib.sha256(name.encode()).hexdigest()}"


def _read(data: bytes) -> Ledger | None:
    """None for what another version wrote: it is only kept to save work."""
    try:
        found: Mapping[str, Any] = json.loads(data)
        return Ledger(**found)
    except (ValueError, TypeError):
        return None
