"""Durable runs of an application: the engine, what feeds it, and the worker of this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import anyio
from attrs import frozen

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.workflow.limits import MAX_CONSUMERS
from lexigram.workflow.durable.config import DurableConfig

if TYPE_CHECKING:  # they load SQLAlchemy, which an application without a database does not need
    from lexigram.workflow.durable.definitions.registry import DefinitionRegistry
    from lexigram.workflow.durable.documents.documents import Documents
    from lexigram.workflow.durable.documents.runs import DurableRuns
    from lexigram.workflow.durable.engine import DurableEngine
    from lexigram.workflow.durable.following import Following
    from lexigram.workflow.durable.orchestrated.runs import OrchestratedRuns
    from lexigram.workflow.durable.questions import Questions
    from lexigram.workflow.durable.store.overview import Overview
    from lexigram.workflow.durable.store.sync_states import SyncStates
    from lexigram.workflow.durable.worker.worker import Worker

T = TypeVar("T")
_DIGITS = len(str(MAX_CONSUMERS))  # Python refuses to read very long numbers
MakeWorker = Callable[[Mapping[str, int] | None], "Worker"]


@frozen(kw_only=True)
class FleetParts:
    """What durable runs are made of, on one database."""

    engine: DurableEngine
    definitions: DefinitionRegistry
    overview: Overview
    make_worker: MakeWorker
    # None without a blob store
    documents: Documents | None
    runs: DurableRuns | None
    # documents as clients over the network bring them: files of some folders only
    uploads: Documents | None
    orchestrated: OrchestratedRuns
    following: Following
    questions: Questions
    sync_states: SyncStates


class DurableFleet:
    """Bound by WorkflowModule; its parts are there when the application has a database.

    Any number of processes with the same database are one fleet.
    """

    def __init__(self, config: DurableConfig, parts: FleetParts | None = None) -> None:
        self.config = config
        self._parts = parts
        # The worker of this process, when it runs one for as long as the application.
        self.worker: Worker | None = None

    @property
    def is_usable(self) -> bool:
        """False where there is no database; then every part raises ConfigurationError."""
        return self._parts is not None

    @property
    def parts(self) -> FleetParts:
        """All of them; raises ConfigurationError where there is no database."""
        if self._parts is None:
            raise ConfigurationError(
                "durable runs need a database, and the application has none",
                hint="add SqlModule to its modules: SqlModule.configure()",
            )
        return self._parts

    @property
    def engine(self) -> DurableEngine:
        """Submit plans, claim, finish, cancel, retry."""
        return self.parts.engine

    @property
    def definitions(self) -> DefinitionRegistry:
        """Workflows and parameter sets."""
        return self.parts.definitions

    @property
    def overview(self) -> Overview:
        """Lists for operators."""
        return self.parts.overview

    @property
    def runs(self) -> DurableRuns:
        """Submit documents and follow them."""
        return _with_blobs(self.parts.runs)

    @property
    def documents(self) -> Documents:
        """Documents, URIs and batches."""
        return _with_blobs(self.parts.documents)

    @property
    def uploads(self) -> Documents:
        """The same for clients over the network: files of ``input_dirs`` only."""
        return _with_blobs(self.parts.uploads)

    @property
    def orchestrated(self) -> OrchestratedRuns:
        """Submit pipelines, graphs and sagas, follow them, answer what they ask."""
        return self.parts.orchestrated

    @property
    def following(self) -> Following:
        """Follow groups to their end, whatever their runs are."""
        return self.parts.following

    @property
    def questions(self) -> Questions:
        """What runs wait for, and the answers to it."""
        return self.parts.questions

    @property
    def sync_states(self) -> SyncStates:
        """The sync states of sources."""
        return self.parts.sync_states

    def new_worker(self, consumers: Mapping[str, int] | None = None) -> Worker:
        """A worker that is not started; None: the configured pools."""
        return self.parts.make_worker(consumers)

    @asynccontextmanager
    async def working(self, consumers: Mapping[str, int] | None = None) -> AsyncGenerator[Worker]:
        """A worker in this process while the block lasts; then it drains."""
        worker = self.new_worker(consumers)
        await worker.start()
        try:
            yield worker
        finally:
            with anyio.CancelScope(shield=True):
                await worker.stop(self.config.stop_timeout)


def pools_of(text: str) -> Mapping[str, int]:
    """Pools as the command line has them: ``parse=8,store=4,*=2``. Raises ValueError."""
    pools: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, size = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not size.isdecimal():
            raise ValueError(f"{part!r} is not of the form TYPE=NUMBER")
        if not 1 <= len(size.lstrip("0")) <= _DIGITS or int(size) > MAX_CONSUMERS:
            raise ValueError(f"{part!r} is not a pool of 1 to {MAX_CONSUMERS} consumers")
        if name in pools:
            raise ValueError(f"the pool {name!r} is there twice")
        pools[name] = int(size)
    if not pools:
        raise ValueError("there is no pool")
    return pools


def _with_blobs(part: T | None) -> T:
    if part is None:
        raise ConfigurationError(
            "documents need a blob store, and the application has none",
            hint="add BlobModule to its modules: BlobModule.configure()",
        )
    return part
