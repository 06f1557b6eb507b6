"""What the built-in maintenance tasks do; each returns how much it did."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import unquote, urlsplit

import anyio

from lexigram import clock
from lexigram.ai.workers.errors import MaintenanceError
from lexigram.ai.workers.maintenance.aged_cache import AgedCache
from lexigram.ai.workers.maintenance.store import FigureStore
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.core.result import Err
from lexigram.contracts.data.vector import VectorMaintenanceProtocol, VectorStoreProtocol

PERIOD_SECONDS = 3600  # of figures
_PAGE = 1000  # documents looked at together

# Counters since the start of the process, and levels as they are now.
Counters: TypeAlias = Callable[[], Mapping[str, float]]
Levels: TypeAlias = Callable[[], Awaitable[Mapping[str, float]]]
Check: TypeAlias = Callable[[float], Awaitable[HealthCheckResult]]
# True when a document with this uri is no longer where it came from; None: cannot be told.
IsGone: TypeAlias = Callable[[str], Awaitable[bool | None]]


@runtime_checkable
class ListsDocuments(Protocol):
    """A collection that can say which documents are in it."""

    async def documents(self, limit: int = 100, offset: int = 0) -> Sequence[Mapping[str, Any]]:
        """Documents by uri: document_id, uri, chunks and more."""
        ...


async def optimize_indexes(store: VectorStoreProtocol) -> dict[str, Any]:
    """Refresh the indexes, then compact and remove old versions."""
    if not isinstance(store, VectorMaintenanceProtocol):
        return {"items_processed": 0, "metadata": {"note": "this store takes care of itself"}}
    worked_on = await store.optimize_indexes()
    freed = await store.vacuum()
    return {"items_processed": worked_on, "metadata": {"freed_bytes": freed}}


async def clean_cache(cache: AgedCache, max_age: float) -> dict[str, Any]:
    """Forget vectors that were not used for ``max_age`` seconds."""
    removed = await cache.clean(max_age)
    if isinstance(removed, Err):
        raise MaintenanceError(
            f"the cache of vectors could not be cleaned: {removed.error.message}",
            cause=removed.error,
        )
    count = removed.unwrap()
    return {"items_processed": count, "items_deleted": count}


async def clean_documents(
    store: VectorStoreProtocol, is_gone: IsGone, *, delete: bool
) -> dict[str, Any]:
    """Find documents whose source is gone, and remove their vectors when asked to."""
    looked_at, deleted = 0, 0
    gone: list[dict[str, str]] = []
    silent: list[str] = []
    for info in await store.list_collections():
        collection = await store.get_collection(info.name)
        if not isinstance(collection, ListsDocuments):
            silent.append(info.name)
            continue
        documents = await _all_documents(collection)
        looked_at += len(documents)
        for document in documents:
            uri = document.get("uri") or document.get("source")
            if not uri or not await is_gone(str(uri)):
                continue
            known_by = "document_id" if document.get("document_id") else "uri"
            gone.append({"collection": info.name, "uri": str(uri)})
            if delete:
                removed = await collection.delete_by_filter({known_by: document[known_by]})
                deleted += removed.deleted_count
    return {
        "items_processed": looked_at,
        "items_deleted": deleted,
        "metadata": {"gone": gone[:100], "gone_count": len(gone), "dry_run": not delete}
        | ({"not_listed": silent} if silent else {}),
    }


async def roll_up(
    counters: Mapping[str, float],
    before: Mapping[str, float],
    levels: Mapping[str, float],
    figures: FigureStore,
    keep: float,
) -> dict[str, Any]:
    """Add what counters grew by to the figures of this hour, and write the levels beside them."""
    period = int(clock.timestamp() // PERIOD_SECONDS) * PERIOD_SECONDS
    # A counter that went back began anew: all of it is growth.
    grown = {name: value - before.get(name, 0.0) for name, value in counters.items()}
    grown = {name: counters[name] if by < 0 else by for name, by in grown.items()}
    added = {name: by for name, by in grown.items() if by}
    await figures.add(added, period)
    await figures.put(levels, period)
    forgotten = await figures.forget(int(clock.timestamp() - keep))
    return {
        "items_processed": len(added) + len(levels),
        "items_deleted": forgotten,
        "metadata": {"period": period, "added": dict(added), "levels": dict(levels)},
    }


async def sweep_health(checks: Mapping[str, Check], timeout: float = 5.0) -> dict[str, Any]:
    """Ask every part; MaintenanceError when one is not healthy, naming all that are not."""
    answers: dict[str, HealthCheckResult] = {}

    async def ask(name: str, check: Check) -> None:
        answers[name] = await check(timeout)

    async with anyio.create_task_group() as tasks:
        for name, check in checks.items():
            tasks.start_soon(ask, name, check)
    bad = {name: answer for name, answer in sorted(answers.items()) if not answer.is_healthy()}
    if bad:
        told = "; ".join(f"{name} is {answer.status.value}" for name, answer in bad.items())
        raise MaintenanceError(
            f"not healthy: {told}",
            details={name: answer.message for name, answer in bad.items()},
        )
    return {"items_processed": len(answers), "metadata": {"healthy": sorted(answers)}}


async def file_is_gone(uri: str) -> bool | None:
    """For files of this machine; None for anything else, which is left alone."""
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        path = anyio.Path(unquote(parts.path))
    elif not parts.scheme and uri.startswith("/"):
        path = anyio.Path(uri)
    else:
        return None
    # A file in a folder that is not there either may be on a disk that is not mounted.
    return not await path.exists() and await path.parent.exists()


async def _all_documents(collection: ListsDocuments) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    while True:
        page = await collection.documents(_PAGE, len(found))
        found += page
        if len(page) < _PAGE:
            return found
