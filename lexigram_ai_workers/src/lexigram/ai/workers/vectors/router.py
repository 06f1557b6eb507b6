"""REST API ``/api/v1/lancedb``: list, info, documents, vacuum."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query

from lexigram.ai.workers.vectors.choose import VectorStores
from lexigram.ai.workers.vectors.databases import VectorDatabases, as_data
from lexigram.ai.workers.vectors.errors import VectorFilterError
from lexigram.ai.workers.vectors.records import MAX_NAME_LENGTH
from lexigram.contracts.core.di import ContainerResolverProtocol
from lexigram.contracts.data.locks import ResourceLockKind
from lexigram.di.errors import ModuleVisibilityError, UnresolvableDependencyError

Database = Annotated[
    str, Query(alias="db", min_length=1, max_length=255, description="Name of the database.")
]

# seconds to wait for the lock; then 409
_MAX_WAIT = 5.0


class LanceDbRouteContributor:
    """Adds the routes to web hosts whose application has vector stores."""

    @property
    def contributor_id(self) -> str:
        """Unique among contributors."""
        return "lancedb"

    def get_routers(self, container: ContainerResolverProtocol) -> Sequence[Any]:
        """Return the router, if VectorStores are available."""
        try:
            stores = container.get(VectorStores)
        except (UnresolvableDependencyError, ModuleVisibilityError):
            return ()
        return (lancedb_router(stores),)


def lancedb_router(stores: VectorStores) -> APIRouter:
    """Create the router for the databases of these stores."""
    databases = VectorDatabases(stores)
    router = APIRouter(prefix="/api/v1/lancedb", tags=["lancedb"])

    @router.get("/list")
    async def list_databases() -> list[dict[str, Any]]:
        """List databases with size and number of collections."""
        return await databases.describe_all()

    @router.get("/info")
    async def info(database: Database) -> dict[str, Any]:
        """Describe a database: collections with rows, model, dimension, index."""
        return await databases.info(database)

    @router.get("/documents")
    async def documents(
        database: Database,
        collection: Annotated[str | None, Query(min_length=1, max_length=MAX_NAME_LENGTH)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        offset: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
        wanted: Annotated[
            str | None,
            Query(alias="filter", max_length=8192, description='JSON: {"source": "manuals"}'),
        ] = None,
    ) -> list[dict[str, Any]]:
        """List the documents of a database with their number of chunks."""
        return await databases.documents(
            database,
            collection=collection,
            limit=limit,
            offset=offset,
            filter=_parse_filter(wanted),
        )

    @router.post("/vacuum")
    async def vacuum(database: Database) -> dict[str, Any]:
        """Compact a database and remove old versions; 409 while it is locked."""
        outcome = await databases.vacuum(database, kind=ResourceLockKind.WEB, max_wait=_MAX_WAIT)
        return as_data(outcome)

    return router


def _parse_filter(text: str | None) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    raise VectorFilterError(
        f"the filter {text!r} is not a JSON object",
        hint='use a filter such as {"source": "manuals"}',
    )
