"""The routes ``/api/v1/lancedb``: list, info, documents, vacuum."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query

from lexigram.ai.workers.vectors.choose import VectorStores
from lexigram.ai.workers.vectors.databases import VectorDatabases, as_data
from lexigram.ai.workers.vectors.errors import VectorFilterError
from lexigram.contracts.core.di import ContainerResolverProtocol
from lexigram.contracts.data.locks import ResourceLockKind
from lexigram.di.errors import ModuleVisibilityError, UnresolvableDependencyError

Database = Annotated[str, Query(alias="db", min_length=1, description="The database.")]

# Seconds a request waits for a writer to end; then 409.
_MAX_WAIT = 5.0


class LanceDbRouteContributor:
    """Brings the routes to hosts whose application has vector stores."""

    @property
    def contributor_id(self) -> str:
        """Unique among contributors."""
        return "lancedb"

    def get_routers(self, container: ContainerResolverProtocol) -> Sequence[Any]:
        """The router; none where nobody exported VectorStores."""
        try:
            stores = container.get(VectorStores)
        except (UnresolvableDependencyError, ModuleVisibilityError):
            return ()
        return (lancedb_router(stores),)


def lancedb_router(stores: VectorStores) -> APIRouter:
    """The routes over the databases of these stores."""
    databases = VectorDatabases(stores)
    router = APIRouter(prefix="/api/v1/lancedb", tags=["lancedb"])

    @router.get("/list")
    async def list_databases() -> list[dict[str, Any]]:
        """Every database with its size and its number of collections."""
        return await databases.describe_all()

    @router.get("/info")
    async def info(database: Database) -> dict[str, Any]:
        """A database with its collections: rows, model, dimension, index."""
        return await databases.info(database)

    @router.get("/documents")
    async def documents(
        database: Database,
        collection: str | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        offset: Annotated[int, Query(ge=0)] = 0,
        wanted: Annotated[
            str | None, Query(alias="filter", description='JSON: {"source": "manuals"}')
        ] = None,
    ) -> list[dict[str, Any]]:
        """The documents of a database, each with how many pieces it has."""
        return await databases.documents(
            database, collection=collection, limit=limit, offset=offset, filter=_parsed(wanted)
        )

    @router.post("/vacuum")
    async def vacuum(database: Database) -> dict[str, Any]:
        """Compact a database and remove its old versions; 409 while somebody writes to it."""
        outcome = await databases.vacuum(database, kind=ResourceLockKind.WEB, max_wait=_MAX_WAIT)
        return as_data(outcome)

    # The way it was before: `curl ".../lancedb/vacuum?db=x"`. It changes files, so new callers
    # POST; what it removes nobody could still read, so a crawler that meets it does no harm.
    router.get("/vacuum", deprecated=True)(vacuum)
    return router


def _parsed(text: str | None) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    raise VectorFilterError(
        f"the filter {text!r} is no JSON object", hint='write {"source": "manuals"}'
    )
