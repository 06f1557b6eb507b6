"""Ingest new and changed files by durable runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from attrs import frozen

from lexigram import clock
from lexigram.ai.workers.cli.files import (
    FailedFile,
    FileScan,
    FoundFile,
    find_files,
    is_below,
    make_absolute,
)
from lexigram.ai.workers.cli.ledger import Ledger, Ledgers, has_ended, is_elsewhere, this_process
from lexigram.ai.workers.config import WorkersConfig
from lexigram.ai.workers.document_ingestion.stages import document_id_of
from lexigram.ai.workers.statistics import IngestionStatistics
from lexigram.ai.workers.steps import StoreParams
from lexigram.ai.workers.vectors.choose import VectorStores
from lexigram.concurrency import BackgroundTask
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
from lexigram.observability import get_logger

logger = get_logger(__name__)

SOURCE = "files"  # the source of documents that come from a path
_UNKNOWN_COUNTS = dict.fromkeys(("completed", "running", "pending", "failed"))
_RETRY_FAILED_AFTER_SECONDS = 60.0
_MAX_SUBMIT_ATTEMPTS = 3  # if files change while they are submitted
# Beside those of RunStatus. INTERRUPTED: the command ended before its runs; PARTIAL: some failed.
INTERRUPTED, PARTIAL = "INTERRUPTED", "PARTIAL"
_HEARTBEAT_SECONDS = 10.0
_HEARTBEAT_TIMEOUT_SECONDS = (
    60.0  # without a heartbeat for so long a process on another machine counts as ended
)
_FINAL = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)
# Concurrent steps. Concurrent stores share a commit: on two busy cores 4 of them store 360 chunks
# a second, 8 store 440, 16 store 445.
_CONSUMERS = {"parse": 4, "store": 8, "*": 8}


@frozen(kw_only=True)
class Request:
    """What to ingest, with options."""

    paths: Sequence[Path]
    workflow: str | None = None
    params: str | None = None
    # None: as in the parameter set
    collection: str | None = None
    # globs of file names; none: all files
    include: Sequence[str] = ()
    # remove documents whose files no longer exist
    prune: bool = False
    # skip files that failed recently and have not changed
    skip_recent_failures: bool = False

    @property
    def roots(self) -> list[str]:
        """The paths, absolute."""
        return sorted({make_absolute(path) for path in self.paths})

    @property
    def options(self) -> list[str | None]:
        """The options that distinguish two ingestions of the same paths."""
        return [self.workflow, self.params, self.collection, *sorted(self.include)]


@frozen(kw_only=True)
class Outcome:
    """Result of an ingestion."""

    # None when there was nothing to do
    group: int | None
    # COMPLETED, PARTIAL, FAILED or CANCELLED: for all files, not only those of the group
    status: str
    files: int
    indexed: int
    unchanged: int
    # documents in the index whose files no longer exist
    gone: Sequence[str]
    removed: int
    bad: Sequence[FailedFile]
    seconds: float
    statistics: IngestionStatistics

    @property
    def chunks_per_second(self) -> float:
        """Stored chunks per second."""
        return self.statistics.stored / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-ready data."""
        return {
            "group": self.group,
            "status": self.status,
            "files": self.files,
            "indexed": self.indexed,
            "unchanged": self.unchanged,
            "failed": len(self.bad),
            "gone": list(self.gone),
            "removed": self.removed,
            "chunks": self.statistics.stored,
            "chunks_per_second": round(self.chunks_per_second, 1),
            "embedded": self.statistics.embedded - self.statistics.cache_hits,
            "cache_hits": self.statistics.cache_hits,
            "seconds": round(self.seconds, 3),
            "failures": [
                {"file": bad.path, "step": bad.step, "error": bad.error, "reason": bad.reason}
                for bad in self.bad
            ],
        }


@frozen(kw_only=True)
class Progress:
    """Progress of an ingestion, for display."""

    stats: RunGroupStats
    # files that need no run, and files that cannot be ingested
    unchanged: int
    refused: int
    seconds: float
    statistics: IngestionStatistics


ProgressCallback = Callable[[Progress], None]


@frozen(kw_only=True)
class _Work:
    """The files to process, and the files to skip."""

    todo: Sequence[FoundFile]
    unchanged: Sequence[FoundFile]
    gone: Sequence[str]
    bad: Sequence[FailedFile]
    settings_key: str


class FileIngestion:
    """``await ingestion.run(request)`` ingests files; running it again resumes.

    A file is skipped if the ledger of its paths records this content and these settings, and the
    index has the same content. All others form one group of durable runs; the same files after
    an interruption belong to the same group.
    """

    def __init__(
        self,
        runs: DurableRunsProtocol,
        blobs: BlobStoreProtocol,
        stores: VectorStores,
        config: WorkersConfig,
        embeddings: EmbeddingProviderProtocol,
        statistics: IngestionStatistics,
    ) -> None:
        self._runs = runs
        self._ledgers = Ledgers(blobs)
        self._stores = stores
        self._config = config
        self._embeddings = embeddings
        self._statistics = statistics
        # hashes of the last scan: --watch does not read unchanged files again
        self._known: dict[str, FoundFile] = {}
        # path -> hash, time and error of the last failure
        self._failed: dict[str, tuple[str, float, FailedFile]] = {}

    async def run(self, request: Request, report: ProgressCallback = lambda _: None) -> Outcome:
        """Ingest new and changed files; a cancelled call waits for in-flight documents."""
        began, before = anyio.current_time(), _copy(self._statistics)
        ledger = await self._ledgers.read(request.roots, request.options)
        work = await self._plan_work(request, ledger)
        stats: RunGroupStats | None = None
        failed: Sequence[FailedFile] = ()
        if work.todo:
            work, group = await self._start_group(request, work, ledger)

            def report_stats(now: RunGroupStats) -> None:
                report(
                    Progress(
                        stats=now,
                        unchanged=len(work.unchanged),
                        refused=len(work.bad),
                        seconds=anyio.current_time() - began,
                        statistics=_since(before, self._statistics),
                    )
                )

            stats = await self._process_group(group, ledger, report_stats)
            failed = await self._failures(group, len(work.todo))
            self._record_failures(failed)
        else:
            ledger.found, ledger.refused = 0, {file.path: file.reason for file in work.bad}
        is_whole = stats is None or stats.group_status is not RunStatus.CANCELLED
        bad = {file.path for file in failed}
        done = [file for file in work.todo if file.path not in bad] if is_whole else []
        removed = await self._prune(request, work.gone) if request.prune else 0
        ledger.files = {file.path: file.hash for file in (*work.unchanged, *done)}
        ledger.settings_key, ledger.process = work.settings_key, None
        ledger.unchanged = len(work.unchanged)
        await self._ledgers.write(ledger)
        there = len(done) + len(work.unchanged)
        return Outcome(
            group=None if stats is None else ledger.group,
            status=_status(stats, there, len(work.bad) + len(failed)),
            files=len(work.todo) + len(work.unchanged) + len(work.bad),
            indexed=len(done),
            unchanged=len(work.unchanged),
            gone=work.gone,
            removed=removed,
            bad=[*work.bad, *failed],
            seconds=anyio.current_time() - began,
            statistics=_since(before, self._statistics),
        )

    async def status(self, collection: str | None = None) -> dict[str, Any]:
        """Return the last ingestion of every set of paths, newest first, and the index size.

        With a ``collection``, only ingestions into it.
        """
        ledgers = [
            ledger
            async for ledger in self._ledgers.all()
            if ledger.group is not None and collection in (None, ledger.collection)
        ]
        ledgers.sort(key=lambda ledger: ledger.began, reverse=True)
        request = Request(paths=(), collection=collection)
        found = await self._collection(request)
        index: dict[str, Any] | None = None
        if found is not None:
            index = {
                "collection": found.name,
                "documents": len(await self._read_index(request)),
                "chunks": await found.count(),
                "model_id": found.model_id,
            }
        return {"ingestions": [await self._describe(ledger) for ledger in ledgers], "index": index}

    async def _describe(self, ledger: Ledger) -> dict[str, Any]:
        assert ledger.group is not None
        refused = [
            FailedFile(path=path, step="find", error="", reason=reason)
            for path, reason in ledger.refused.items()
        ]
        data: dict[str, Any] = {
            "group": ledger.group,
            "paths": list(ledger.roots),
            "workflow": ledger.options[0] if ledger.options else None,
            "params": ledger.options[1] if ledger.options else None,
            "collection": ledger.collection,
            "began": ledger.began,
            "files": ledger.found + ledger.unchanged + len(refused),
        }
        stats: RunGroupStats | None = None
        failed: Sequence[FailedFile] = ()
        if ledger.found:
            try:
                stats = await self._runs.status(ledger.group)
                failed = await self._failures(ledger.group, ledger.found)
            except LookupError:  # the group was removed by retention
                return {**data, "status": "REMOVED", **_UNKNOWN_COUNTS, "failures": []}
        statistics = await _describe_stats(ledger, stats, len(refused))
        return {
            **data,
            **statistics,
            "failures": [
                {"file": bad.path, "step": bad.step, "error": bad.error, "reason": bad.reason}
                for bad in (*refused, *failed)
            ],
        }

    # --- planning --------------------------------------------------------------------

    async def _plan_work(self, request: Request, ledger: Ledger) -> _Work:
        plan = await self._runs.plan_key(
            workflow_id=request.workflow,
            param_id=request.params,
            overrides=self._overrides(request),
        )
        settings_key = _digest([plan, self._embeddings.model_id])
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
        self._known = {file.path: file for file in found.files}
        stored = await self._read_index(request)
        ledger_files = ledger.files if ledger.settings_key == settings_key else {}
        unchanged = [
            file
            for file in found.files
            if ledger_files.get(file.path) == stored.get(file.path) == file.hash
        ]
        failed = self._recent_failures() if request.skip_recent_failures else {}
        left = {*(file.path for file in unchanged), *failed}
        return _Work(
            todo=[file for file in found.files if file.path not in left],
            unchanged=unchanged,
            gone=[] if request.include else _find_missing(stored, request.roots, found),
            bad=[*found.bad, *failed.values()],
            settings_key=settings_key,
        )

    def _record_failures(self, failed: Sequence[FailedFile]) -> None:
        now = anyio.current_time()
        for file in failed:
            if file.path in self._known:
                self._failed[file.path] = (self._known[file.path].hash, now, file)

    def _recent_failures(self) -> dict[str, FailedFile]:
        """Return files that failed recently and have not changed since."""
        oldest = anyio.current_time() - _RETRY_FAILED_AFTER_SECONDS
        return {
            path: bad
            for path, (digest, at, bad) in self._failed.items()
            if at > oldest and path in self._known and self._known[path].hash == digest
        }

    async def _read_index(self, request: Request) -> dict[str, str]:
        """Return path -> content hash of the documents in the index."""
        collection = await self._collection(request)
        if collection is None:
            return {}
        # top_k is the number of chunks, so this finds the first chunk of every document.
        query = SearchQuery(
            vector=[1.0] + [0.0] * (collection.dimension - 1),
            top_k=max(1, await collection.count()),
            filter={"source": SOURCE, "chunk_index": 0},
        )
        data = [found.metadata for found in await collection.search(query)]
        return {str(item["uri"]): str(item["doc_hash"]) for item in data}

    def _overrides(self, request: Request) -> Mapping[str, Mapping[str, Any]] | None:
        """Step parameters that override the parameter set: where to store."""
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

    async def _start_group(
        self, request: Request, work: _Work, ledger: Ledger
    ) -> tuple[_Work, int]:
        """Submit the group; rescan if files change or disappear meanwhile."""
        for _ in range(_MAX_SUBMIT_ATTEMPTS):
            try:
                return work, await self._submit(request, work, ledger)
            except LexigramError:
                self._known.clear()
                again = await self._plan_work(request, ledger)
                if not again.todo or again.todo == work.todo:
                    raise
                work = again
        return work, await self._submit(request, work, ledger)

    async def _submit(self, request: Request, work: _Work, ledger: Ledger) -> int:
        """Return the group of these files: an interrupted one, or a new one."""
        key = _digest([work.settings_key, sorted((file.path, file.hash) for file in work.todo)])
        if ledger.group is not None and ledger.key != key:
            await self._cancel_superseded(ledger.group)
        submit = partial(
            self._runs.submit,
            [RunDocument(uri=file.path, source=SOURCE) for file in work.todo],
            workflow_id=request.workflow,
            param_id=request.params,
            overrides=self._overrides(request),
            name=", ".join(request.roots)[:200],
        )
        group = await submit(idempotency_key=f"ingest-{key}")
        is_over = (await self._runs.status(group)).group_status in _FINAL
        # Failed files are retried; documents missing from the index are stored again.
        if is_over and not await self._runs.retry(group):
            group = await submit()
        ledger.group, ledger.key = group, key
        ledger.began = ledger.heartbeat_at = clock.timestamp()
        ledger.found, ledger.unchanged = len(work.todo), len(work.unchanged)
        ledger.process = await anyio.to_thread.run_sync(this_process)
        ledger.refused = {file.path: file.reason for file in work.bad}
        await self._ledgers.write(ledger)
        return group

    async def _cancel_superseded(self, group: int) -> None:
        """Cancel runs of old contents: they must not be stored after the new ones."""
        try:
            stats = await self._runs.status(group)
        except LookupError:  # the group was removed by retention
            return
        if stats.group_status not in _FINAL:
            await self._runs.cancel(group, reason="the files changed")

    async def _process_group(
        self, group: int, ledger: Ledger, report: Callable[[RunGroupStats], None]
    ) -> RunGroupStats:
        stats = await self._runs.status(group)
        heartbeat = BackgroundTask("ingest.heartbeat", partial(self._send_heartbeats, ledger))
        await heartbeat.start()
        try:
            async with self._runs.working(_CONSUMERS):
                async for stats in self._runs.watch(group):
                    report(stats)
        finally:
            await heartbeat.stop()
        return stats

    async def _send_heartbeats(self, ledger: Ledger, task: BackgroundTask) -> None:
        task.set_ready()
        while not task.stopping.is_set():
            await task.pause(_HEARTBEAT_SECONDS)
            ledger.heartbeat_at = clock.timestamp()
            try:
                await self._ledgers.write(ledger)
            except LexigramError as error:  # the next heartbeat may succeed
                logger.warning("heartbeat of the ingestion ledger failed", error=str(error))

    async def _failures(self, group: int, limit: int) -> Sequence[FailedFile]:
        failures = await self._runs.failures(group, limit=limit)
        return [
            FailedFile(
                path=item.uri or "", step=item.step, error=item.error_type, reason=item.message
            )
            for item in failures
        ]

    async def _prune(self, request: Request, gone: Sequence[str]) -> int:
        collection = await self._collection(request)
        for path in gone:
            if collection is not None:
                await collection.delete_by_filter({"document_id": document_id_of(SOURCE, path)})
            await self._runs.forget(path, SOURCE)
        return len(gone)


def _status(stats: RunGroupStats | None, there: int, failed: int) -> str:
    """The status of all files: ``there`` are in the index, ``failed`` are not."""
    if stats is not None and stats.group_status not in (RunStatus.COMPLETED, RunStatus.FAILED):
        return stats.group_status.value
    if not failed:
        return RunStatus.COMPLETED.value
    return PARTIAL if there else RunStatus.FAILED.value


async def _describe_stats(
    ledger: Ledger, stats: RunGroupStats | None, refused: int
) -> dict[str, Any]:
    """Return status and counts of the last ingestion of a ledger."""
    completed = ledger.unchanged + (0 if stats is None else stats.completed)
    failed = refused + (0 if stats is None else stats.failed)
    running, pending = (0, 0) if stats is None else (stats.running, stats.pending)
    status = _status(stats, completed, failed)
    if stats is not None and stats.group_status not in _FINAL and await _has_ended(ledger):
        # In-flight runs of a killed process are no longer running.
        status, running, pending = INTERRUPTED, 0, running + pending
    return {
        "status": status,
        "completed": completed,
        "running": running,
        "pending": pending,
        "failed": failed,
    }


async def _has_ended(ledger: Ledger) -> bool:
    """True when the process of the ingestion has ended."""
    if ledger.process is None:
        return True
    if is_elsewhere(ledger.process):
        return clock.timestamp() - ledger.heartbeat_at > _HEARTBEAT_TIMEOUT_SECONDS
    return await anyio.to_thread.run_sync(has_ended, ledger.process)


def _find_missing(stored: Mapping[str, str], roots: Sequence[str], found: FileScan) -> list[str]:
    """Return stored paths that no longer exist; paths in unreadable folders are not reported."""
    there = {file.path for file in found.files}
    bad = [file.path for file in found.bad]
    missing = [path for path in stored if path not in there]
    return sorted(
        path
        for path in missing
        if any(is_below(path, root) for root in roots)
        and not any(is_below(path, failed) for failed in bad)
    )


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()


def _copy(statistics: IngestionStatistics) -> IngestionStatistics:
    return IngestionStatistics(
        embedded=statistics.embedded,
        cache_hits=statistics.cache_hits,
        stored=statistics.stored,
        unchanged=statistics.unchanged,
    )


def _since(before: IngestionStatistics, now: IngestionStatistics) -> IngestionStatistics:
    return IngestionStatistics(
        embedded=now.embedded - before.embedded,
        cache_hits=now.cache_hits - before.cache_hits,
        stored=now.stored - before.stored,
        unchanged=now.unchanged - before.unchanged,
    )
