"""The built-in maintenance tasks; each returns the number of processed items."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import unquote, urlsplit

import anyio

from lexigram import clock
from lexigram.ai.workers.errors import MaintenanceError
from lexigram.ai.workers.maintenance.aged_cache import AgedCache
from lexigram.ai.workers.maintenance.store import StatisticsStore
from lexigram.concurrency import call
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.core.result import Err
from lexigram.contracts.data.vector import VectorMaintenanceProtocol, VectorStoreProtocol

PERIOD_SECONDS = 3600  # of statistics
_PAGE_SIZE = 1000  # documents per page

# Counters since the start of the process, and current levels.
Counters: TypeAlias = Callable[[], Mapping[str, float]]
Levels: TypeAlias = Callable[[], Awaitable[Mapping[str, float]]]
Check: TypeAlias = Callable[[float], Awaitable[HealthCheckResult]]
# True if the file of a URI does not exist any more; None: unknown.
IsMissing: TypeAlias = Callable[[str], Awaitable[bool | None]]


@runtime_checkable
class ListsDocuments(Protocol):
    """A collection that can list its documents."""

    async def documents(self, limit: int = 100, offset: int = 0) -> Sequence[Mapping[str, Any]]:
        """List documents by URI: document_id, uri, chunks and more."""
        ...


async def optimize_indexes(store: VectorStoreProtocol) -> dict[str, Any]:
    """Update the indexes, then compact and remove old versions."""
    if not isinstance(store, VectorMaintenanceProtocol):
        return {"items_processed": 0, "metadata": {"note": "the store needs no optimization"}}
    collection_count = await store.optimize_indexes()
    freed = await store.vacuum()
    return {"items_processed": collection_count, "metadata": {"freed_bytes": freed}}


async def clean_cache(cache: AgedCache, max_age: float) -> dict[str, Any]:
    """Delete cached vectors that were not used for ``max_age`` seconds."""
    removed = await cache.clean(max_age)
    if isinstance(removed, Err):
        raise MaintenanceError(
            f"cleaning the embedding cache failed: {removed.error.message}",
            cause=removed.error,
        )
    count = removed.unwrap()
    return {"items_processed": count, "items_deleted": count}


async def clean_documents(
    store: VectorStoreProtocol, is_missing: IsMissing, *, delete: bool
) -> dict[str, Any]:
    """Find documents whose file does not exist any more; with ``delete`` remove their vectors."""
    checked_count, deleted = 0, 0
    missing: list[dict[str, str]] = []
    unlisted: list[str] = []
    for info in await store.list_collections():
        collection = await store.get_collection(info.name)
        if not isinstance(collection, ListsDocuments):
            unlisted.append(info.name)
            continue
        documents = await _all_documents(collection)
        checked_count += len(documents)
        for document in documents:
            uri = document.get("uri") or document.get("source")
            if not uri or not await is_missing(str(uri)):
                continue
            key = "document_id" if document.get("document_id") else "uri"
            missing.append({"collection": info.name, "uri": str(uri)})
            if delete:
                removed = await collection.delete_by_filter({key: document[key]})
                deleted += removed.deleted_count
    return {
        "items_processed": checked_count,
        "items_deleted": deleted,
        "metadata": {"gone": missing[:100], "gone_count": len(missing), "dry_run": not delete}
        | ({"not_listed": unlisted} if unlisted else {}),
    }


async def store_statistics(
    counters: Mapping[str, float],
    before: Mapping[str, float],
    levels: Mapping[str, float],
    statistics: StatisticsStore,
    keep: float,
) -> dict[str, Any]:
    """Add the increments of counters to the statistics of this hour, and write the levels."""
    period = int(clock.timestamp() // PERIOD_SECONDS) * PERIOD_SECONDS
    # A counter that decreased was reset: its whole value is the increment.
    increments = {name: value - before.get(name, 0.0) for name, value in counters.items()}
    increments = {
        name: counters[name] if increment < 0 else increment
        for name, increment in increments.items()
    }
    added = {name: increment for name, increment in increments.items() if increment}
    await statistics.add(added, period)
    await statistics.put(levels, period)
    deleted_count = await statistics.delete_before(int(clock.timestamp() - keep))
    return {
        "items_processed": len(added) + len(levels),
        "items_deleted": deleted_count,
        "metadata": {"period": period, "added": dict(added), "levels": dict(levels)},
    }


async def check_health(checks: Mapping[str, Check], timeout: float = 5.0) -> dict[str, Any]:
    """Run all health checks; MaintenanceError lists the unhealthy components."""
    answers: dict[str, HealthCheckResult] = {}

    async def run_check(name: str, check: Check) -> None:
        try:
            answers[name] = await call(check, timeout, timeout=timeout, host=host)
        except Exception as error:  # noqa: BLE001 - a check that raises is unhealthy
            answers[name] = HealthCheckResult(
                component=name,
                status=HealthStatus.UNHEALTHY,
                message=f"{type(error).__name__}: {error}",
            )

    host = asyncio.current_task()
    async with anyio.create_task_group() as tasks:
        for name, check in checks.items():
            tasks.start_soon(run_check, name, check)
    bad = {name: answer for name, answer in sorted(answers.items()) if not answer.is_healthy()}
    if bad:
        summary = "; ".join(f"{name} is {answer.status.value}" for name, answer in bad.items())
        raise MaintenanceError(
            f"unhealthy components: {summary}",
            details={name: answer.message for name, answer in bad.items()},
        )
    return {"items_processed": len(answers), "metadata": {"healthy": sorted(answers)}}


async def is_file_missing(uri: str) -> bool | None:
    """Check a local file; None for any other URI, which is skipped."""
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        path = anyio.Path(unquote(parts.path))
    elif not parts.scheme and uri.startswith("/"):
        path = anyio.Path(uri)
    else:
        return None
    # If the folder is missing too, the disk may not be mounted.
    return not await path.exists() and await path.parent.exists()


async def _all_documents(collection: ListsDocuments) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    while True:
        page = await collection.documents(_PAGE_SIZE, len(found))
        found += page
        if len(page) < _PAGE_SIZE:
            return found
