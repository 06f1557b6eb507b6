"""Bring files into the index by durable runs: what is new or changed, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
from attrs import frozen

from lexigram import clock
from lexigram.ai.workers.cli.files import BadFile, Found, FoundFile, absolute, find_files, is_below
from lexigram.ai.workers.cli.ledger import Ledger, Ledgers
from lexigram.ai.workers.cli.processes import has_ended, this_process
from lexigram.ai.workers.config import WorkersConfig
from lexigram.ai.workers.document_ingestion.stages import document_id_of
from lexigram.ai.workers.figures import IngestionFigures
from lexigram.ai.workers.steps import StoreParams
from lexigram.ai.workers.vectors.choose import VectorStores
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.data.blobs import BlobStoreProtocol
from lexigram.contracts.data.vector import SearchQuery, VectorCollectionProtocol
from lexigram.contracts.workflow.durable import (
    DurableRunsProtocol,
    RunDocument,
    RunGroupStats,
    RunStatus,
)

SOURCE = "files"  # of every document that comes from a path
_NO_FIGURES = dict.fromkeys(("completed", "running", "pending", "failed"))
_PATIENCE_SECONDS = 60.0
_TRIES = 3  # when files change while they are read
INTERRUPTED = "INTERRUPTED"  # beside RunStatus: the command has ended, its files have not
_FINAL = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)
# Steps at once. Stores that wait together share a commit: with 4 of them 360 chunks a second on two
# busy cores, with 8 440, with 16 445.
_CONSUMERS = {"parse": 4, "store": 8, "*": 8}


@frozen(kw_only=True)
class Request:
    """What to ingest, and how."""

    paths: Sequence[Path]
    workflow: str | None = None
    params: str | None = None
    # None: the one that the parameters name
    collection: str | None = None
    # names of files, as globs; none: all
    include: Sequence[str] = ()
    # remove from the index what is gone from the paths
    prune: bool = False
    # leave alone for a while what failed and did not change since
    patient: bool = False

    @property
    def roots(self) -> list[str]:
        """The paths, absolute."""
        return sorted({absolute(path) for path in self.paths})

    @property
    def asked(self) -> list[str | None]:
        """What tells two ingestions of the same paths apart."""
        return [self.workflow, self.params, self.collection, *sorted(self.include)]


@frozen(kw_only=True)
class Outcome:
    """How an ingestion ended."""

    # None when there was nothing to do
    group: int | None
    # of the group; COMPLETED when there was nothing to do
    status: RunStatus
    files: int
    indexed: int
    unchanged: int
    # in the index, and not at their paths any more
    gone: Sequence[str]
    removed: int
    bad: Sequence[BadFile]
    seconds: float
    figures: IngestionFigures

    @property
    def chunks_per_second(self) -> float:
        """Of chunks that were stored."""
        return self.figures.stored / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {
            "group": self.group,
            "status": self.status.value,
            "files": self.files,
            "indexed": self.indexed,
            "unchanged": self.unchanged,
            "failed": len(self.bad),
            "gone": list(self.gone),
            "removed": self.removed,
            "chunks": self.figures.stored,
            "chunks_per_second": round(self.chunks_per_second, 1),
            "embedded": self.figures.embedded - self.figures.cache_hits,
            "cache_hits": self.figures.cache_hits,
            "seconds": round(self.seconds, 3),
            "failures": [
                {"file": bad.path, "step": bad.step, "error": bad.error, "reason": bad.reason}
                for bad in self.bad
            ],
        }


@frozen(kw_only=True)
class Progress:
    """How far it is, for whoever shows it."""

    stats: RunGroupStats
    # of the whole: files that need no run, and those that cannot have one
    unchanged: int
    refused: int
    seconds: float
    figures: IngestionFigures


Tell = Callable[[Progress], None]


@frozen(kw_only=True)
class _Work:
    """What there is to do."""

    todo: Sequence[FoundFile]
    unchanged: Sequence[FoundFile]
    gone: Sequence[str]
    bad: Sequence[BadFile]
    made_by: str


class FileIngestion:
    """``await ingestion.run(request)``: again and again, it goes on where it was.

    A file is left alone when the ledger of its paths says that it was stored with this content
    and these settings, and the index has it so. The others become one group of durable runs;
    the same files after an interruption are the same group.
    """

    def __init__(
        self,
        runs: DurableRunsProtocol,
        blobs: BlobStoreProtocol,
        stores: VectorStores,
        config: WorkersConfig,
        embeddings: EmbeddingProviderProtocol,
        figures: IngestionFigures,
    ) -> None:
        self._runs = runs
        self._ledgers = Ledgers(blobs)
        self._stores = stores
        self._config = config
        self._embeddings = embeddings
        self._figures = figures
        # as they were last seen: watching does not read them again
        self._known: dict[str, FoundFile] = {}
        # what failed last, with its content and when
        self._failed: dict[str, tuple[str, float, BadFile]] = {}

    async def run(self, request: Request, tell: Tell = lambda _: None) -> Outcome:
        """Ingest what is new or changed; cancelled, it waits for the documents at hand."""
        began, before = anyio.current_time(), _copy(self._figures)
        ledger = await self._ledgers.read(request.roots, request.asked)
        work = await self._looked(request, ledger)
        stats: RunGroupStats | None = None
        failed: Sequence[BadFile] = ()
        if work.todo:
            work, group = await self._begun(request, work, ledger)

            def told(now: RunGroupStats) -> None:
                tell(
                    Progress(
                        stats=now,
                        unchanged=len(work.unchanged),
                        refused=len(work.bad),
                        seconds=anyio.current_time() - began,
                        figures=_since(before, self._figures),
                    )
                )

            stats = await self._worked(group, told)
            failed = await self._failures(group, len(work.todo))
            self._remember(failed)
        is_whole = stats is None or stats.group_status is not RunStatus.CANCELLED
        bad = {one.path for one in failed}
        done = [one for one in work.todo if one.path not in bad] if is_whole else []
        removed = await self._pruned(request, work.gone) if request.prune else 0
        ledger.files = {one.path: one.hash for one in (*work.unchanged, *done)}
        ledger.made_by, ledger.process = work.made_by, None
        await self._ledgers.write(ledger)
        return Outcome(
            group=None if stats is None else ledger.group,
            status=RunStatus.COMPLETED if stats is None else stats.group_status,
            files=len(work.todo) + len(work.unchanged) + len(work.bad),
            indexed=len(done),
            unchanged=len(work.unchanged),
            gone=work.gone,
            removed=removed,
            bad=[*work.bad, *failed],
            seconds=anyio.current_time() - began,
            figures=_since(before, self._figures),
        )

    async def status(self, collection: str | None = None) -> dict[str, Any]:
        """The last ingestion of every set of paths, the newest first, and what the index has."""
        ledgers = [ledger async for ledger in self._ledgers.all() if ledger.group is not None]
        ledgers.sort(key=lambda ledger: ledger.began, reverse=True)
        request = Request(paths=(), collection=collection)
        found = await self._collection(request)
        index: dict[str, Any] | None = None
        if found is not None:
            index = {
                "collection": found.name,
                "documents": len(await self._stored(request)),
                "chunks": await found.count(),
                "model_id": found.model_id,
            }
        return {"ingestions": [await self._described(one) for one in ledgers], "index": index}

    async def _described(self, ledger: Ledger) -> dict[str, Any]:
        assert ledger.group is not None
        facts: dict[str, Any] = {
            "group": ledger.group,
            "paths": list(ledger.roots),
            "workflow": ledger.asked[0] if ledger.asked else None,
            "params": ledger.asked[1] if ledger.asked else None,
            "began": ledger.began,
            "files": ledger.found,
        }
        refused = [
            BadFile(path=path, step="find", error="", reason=reason)
            for path, reason in ledger.refused.items()
        ]
        try:
            stats = await self._runs.status(ledger.group)
            failed = await self._failures(ledger.group, max(1, ledger.found))
        except LookupError:  # it is so old that it was removed
            return {**facts, "status": "REMOVED", **_NO_FIGURES, "failures": []}
        return {
            **facts,
            "status": await _status(ledger, stats.group_status),
            "completed": stats.completed,
            "running": stats.running,
            "pending": stats.pending,
            "failed": stats.failed + len(refused),
            "failures": [
                {"file": one.path, "step": one.step, "error": one.error, "reason": one.reason}
                for one in (*refused, *failed)
            ],
        }

    # --- what there is to do --------------------------------------------------------------------

    async def _looked(self, request: Request, ledger: Ledger) -> _Work:
        plan = await self._runs.plan_key(
            workflow_id=request.workflow,
            param_id=request.params,
            overrides=self._overrides(request),
        )
        made_by = _digest([plan, self._embeddings.model_id])
        limits = self._config.ingestion
        found = await anyio.to_thread.run_sync(
            partial(
                find_files,
                request.roots,
                include=request.include,
                allowed_roots=limits.allowed_roots,
                max_bytes=limits.max_bytes,
                known=self._known,
            )
        )
        self._known = {one.path: one for one in found.files}
        stored = await self._stored(request)
        trusted = ledger.files if ledger.made_by == made_by else {}
        unchanged = [
            one for one in found.files if trusted.get(one.path) == stored.get(one.path) == one.hash
        ]
        failed = self._failed_as_they_are() if request.patient else {}
        left = {*(one.path for one in unchanged), *failed}
        return _Work(
            todo=[one for one in found.files if one.path not in left],
            unchanged=unchanged,
            gone=[] if request.include else _gone(stored, request.roots, found),
            bad=[*found.bad, *failed.values()],
            made_by=made_by,
        )

    def _remember(self, failed: Sequence[BadFile]) -> None:
        now = anyio.current_time()
        for one in failed:
            if one.path in self._known:
                self._failed[one.path] = (self._known[one.path].hash, now, one)

    def _failed_as_they_are(self) -> dict[str, BadFile]:
        """What failed not long ago and did not change since."""
        oldest = anyio.current_time() - _PATIENCE_SECONDS
        return {
            path: bad
            for path, (digest, at, bad) in self._failed.items()
            if at > oldest and path in self._known and self._known[path].hash == digest
        }

    async def _stored(self, request: Request) -> dict[str, str]:
        """Path -> hash of the content that the index has of it."""
        collection = await self._collection(request)
        if collection is None:
            return {}
        # The nearest of all are all: the first chunk of every document.
        query = SearchQuery(
            vector=[1.0] + [0.0] * (collection.dimension - 1),
            top_k=max(1, await collection.count()),
            filter={"source": SOURCE, "chunk_index": 0},
        )
        facts = [found.metadata for found in await collection.search(query)]
        return {str(one["uri"]): str(one["doc_hash"]) for one in facts}

    def _overrides(self, request: Request) -> Mapping[str, Mapping[str, Any]] | None:
        """Parameters by step: where to store, when it is not where the sets say."""
        found: dict[str, Any] = {}
        if request.collection:
            found["collection_name"] = request.collection
        if self._stores.config.database != StoreParams().data_dir:
            found["data_dir"] = self._stores.config.database
        return {"store": found} if found else None

    async def _collection(self, request: Request) -> VectorCollectionProtocol | None:
        store = self._stores.at()
        name = request.collection or StoreParams().collection_name
        return await store.get_collection(name) if await store.collection_exists(name) else None

    # --- the group ------------------------------------------------------------------------------

    async def _begun(self, request: Request, work: _Work, ledger: Ledger) -> tuple[_Work, int]:
        """The group; files that change or go while they are read are looked at again."""
        for _ in range(_TRIES):
            try:
                return work, await self._submitted(request, work, ledger)
            except LexigramError:
                self._known.clear()
                again = await self._looked(request, ledger)
                if not again.todo or again.todo == work.todo:
                    raise
                work = again
        return work, await self._submitted(request, work, ledger)

    async def _submitted(self, request: Request, work: _Work, ledger: Ledger) -> int:
        """The group of these files: that of an interrupted run, or a new one."""
        key = _digest([work.made_by, sorted((one.path, one.hash) for one in work.todo)])
        if ledger.group is not None and ledger.key != key:
            await self._superseded(ledger.group)
        submit = partial(
            self._runs.submit,
            [RunDocument(uri=one.path, source=SOURCE) for one in work.todo],
            workflow_id=request.workflow,
            param_id=request.params,
            overrides=self._overrides(request),
            name=", ".join(request.roots)[:200],
        )
        group = await submit(idempotency_key=f"ingest-{key}")
        is_over = (await self._runs.status(group)).group_status in _FINAL
        # Failed files are tried again; what is gone from the index is stored again.
        if is_over and not await self._runs.retry(group):
            group = await submit()
        ledger.group, ledger.key = group, key
        ledger.began, ledger.found = clock.timestamp(), len(work.todo)
        ledger.process = await anyio.to_thread.run_sync(this_process)
        ledger.refused = {one.path: one.reason for one in work.bad}
        await self._ledgers.write(ledger)
        return group

    async def _superseded(self, group: int) -> None:
        """Runs of contents that changed since must not be stored after the new ones."""
        try:
            stats = await self._runs.status(group)
        except LookupError:  # it is so old that it was removed
            return
        if stats.group_status not in _FINAL:
            await self._runs.cancel(group, reason="the files changed since")

    async def _worked(self, group: int, tell: Callable[[RunGroupStats], None]) -> RunGroupStats:
        stats = await self._runs.status(group)
        async with self._runs.working(_CONSUMERS):
            async for stats in self._runs.watch(group):
                tell(stats)
        return stats

    async def _failures(self, group: int, limit: int) -> Sequence[BadFile]:
        failures = await self._runs.failures(group, limit=limit)
        return [
            BadFile(path=one.uri or "", step=one.step, error=one.error_type, reason=one.message)
            for one in failures
        ]

    async def _pruned(self, request: Request, gone: Sequence[str]) -> int:
        collection = await self._collection(request)
        for path in gone:
            if collection is not None:
                await collection.delete_by_filter({"document_id": document_id_of(SOURCE, path)})
            await self._runs.forget(path, SOURCE)
        return len(gone)


async def _status(ledger: Ledger, group: RunStatus) -> str:
    """Of the group, unless nobody is left who waits for its end."""
    if group in _FINAL:
        return group.value
    is_left = ledger.process is None or await anyio.to_thread.run_sync(has_ended, ledger.process)
    return INTERRUPTED if is_left else group.value


def _gone(stored: Mapping[str, str], roots: Sequence[str], found: Found) -> list[str]:
    """What is stored and no longer there; of a folder that cannot be read nothing is known."""
    there = {one.path for one in found.files}
    bad = [one.path for one in found.bad]
    missing = [path for path in stored if path not in there]
    return sorted(
        path
        for path in missing
        if any(is_below(path, root) for root in roots)
        and not any(is_below(path, one) for one in bad)
    )


def _digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _copy(figures: IngestionFigures) -> IngestionFigures:
    return IngestionFigures(
        embedded=figures.embedded,
        cache_hits=figures.cache_hits,
        stored=figures.stored,
        unchanged=figures.unchanged,
    )


def _since(before: IngestionFigures, now: IngestionFigures) -> IngestionFigures:
    return IngestionFigures(
        embedded=now.embedded - before.embedded,
        cache_hits=now.cache_hits - before.cache_hits,
        stored=now.stored - before.stored,
        unchanged=now.unchanged - before.unchanged,
    )
