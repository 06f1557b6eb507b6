"""Hand documents to a fleet of workers and follow them, without knowing the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar, runtime_checkable

Handler = TypeVar("Handler", bound=Callable[..., Any])


class RunStatus(StrEnum):
    """Where a run, a step or a group is; COMPLETED, FAILED and CANCELLED are final."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"  # failed, will be tried again
    FAILED = "FAILED"  # gave up
    CANCELLED = "CANCELLED"


@dataclass(frozen=True)
class RunDocument:
    """A document to process: where it came from, and its bytes or where to read them."""

    uri: str
    source: str
    # None: the engine reads ``uri``
    content: bytes | None = None
    mime_type: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ArtifactType(StrEnum):
    """What a step leaves behind for the next ones."""

    DOC = "doc"
    PARSED_MD = "parsed_md"
    PARSED_JSON = "parsed_json"
    CHUNKS = "chunks"
    EMBEDDINGS = "embeddings"
    RAG = "rag"
    CUSTOM = "custom"


@dataclass(frozen=True)
class RunDocumentRecord:
    """A stored document, as handlers get it: its bytes are the artifact DOC."""

    # sha256 of the content, as "sha256-<hex>"
    hash: str
    mime_type: str
    file_size: int
    # where it was last seen; one content may have several
    uri: str
    source: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class RunFailure:
    """One run that failed: which document, where, and why."""

    run_id: int
    uri: str | None
    # the step that gave up
    step: str
    # the type of its last error, and its text
    error_type: str
    message: str


@runtime_checkable
class ArtifactProtocol(Protocol):
    """One piece of work of a step for a document, kept in the blob store.

    Steps with the same parameters up to here share it. A write replaces the whole and is seen
    whole or not at all; the last of two writers wins, and both wrote the same.
    """

    @property
    def path(self) -> str:
        """Where it is in the blob store."""
        ...

    async def exists(self) -> bool:
        """True when it was written."""
        ...

    async def read(self) -> bytes:
        """The bytes; raises BlobNotFoundError when nobody wrote it."""
        ...

    async def write(self, data: bytes) -> str:
        """Keep the bytes; returns ``path``."""
        ...


@runtime_checkable
class StepContextProtocol(Protocol):
    """The running step, for its handler: the parameter ``ctx``."""

    @property
    def attempt(self) -> int:
        """1 for the first; grows with every attempt that failed."""
        ...

    @property
    def idempotency_key(self) -> str:
        """The same in each attempt at this step, also after a crash; of no other step.

        A step that is cut off is done again: give the key to services that shall do a thing once.
        """
        ...

    @property
    def cancelled(self) -> bool:
        """True when the run is to be cancelled; what the handler returns is ignored."""
        ...

    async def heartbeat(self) -> bool:
        """Renew the lease now; False when it is lost and the work counts nothing."""
        ...

    async def progress(self, current: int, total: int, message: str = "") -> None:
        """Say how far the step is; old values may be skipped."""
        ...

    def artifact(self, kind: ArtifactType, name: str | None = None) -> ArtifactProtocol:
        """The artifact of this document: of this step, or of the step before that makes ``kind``.

        ``name`` tells several CUSTOM artifacts of a step apart.
        """
        ...


def step_params(model: type) -> Callable[[Handler], Handler]:
    """Say what parameters a step handler takes: an attrs class with types and defaults.

    Definitions and parameter sets are checked against it when they are loaded; the handler
    still gets the plain ``step_params``.
    """

    def mark(handler: Handler) -> Handler:
        handler.__step_params__ = model  # type: ignore[attr-defined]
        return handler

    return mark


@dataclass(frozen=True)
class RunGroupStats:
    """How far a group is. The counts are runs and add up to ``total_runs``."""

    total_runs: int
    completed: int
    running: int
    pending: int
    failed: int
    # seconds per finished run; None before the first
    average_duration: float | None
    group_status: RunStatus
    # what no live worker has: "no worker for handler shop.steps.parse (pool parse)", or of a
    # lifecycle event "no worker for handler shop.notify (event group_end)"
    problems: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """The seven statistics as JSON-ready data, and the problems if there are some."""
        problems = {"problems": list(self.problems)} if self.problems else {}
        return problems | {
            "total_runs": self.total_runs,
            "completed": self.completed,
            "running": self.running,
            "pending": self.pending,
            "failed": self.failed,
            "average_duration": self.average_duration,
            "group_status": self.group_status.value,
        }


@runtime_checkable
class DurableRunsProtocol(Protocol):
    """Runs that survive crashes: one run per document, gathered in a group.

    Guaranteed: a submitted run goes on after any crash until it is final, and a finished step
    is not done again. Not guaranteed: order between runs, and that a step which was cut off
    had no effect: handlers must bear being called again.
    """

    async def submit(
        self,
        documents: Sequence[RunDocument],
        *,
        workflow_id: str | None = None,
        param_id: str | None = None,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        name: str | None = None,
        priority: int = 0,
        tenant_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """Store documents and runs in one transaction; the id of the group.

        The defaults of the engine stand in for workflow and parameters; ``overrides`` are
        parameters by step, laid over the set. A second call with the same ``idempotency_key``
        returns the first group; without a key it makes another. Raises LookupError for an
        unknown workflow or parameter set and ValueError for a wrong parameter, and then
        stores nothing.
        """
        ...

    async def plan_key(
        self,
        *,
        workflow_id: str | None = None,
        param_id: str | None = None,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> str:
        """What names the work that ``submit`` would give to each document.

        The same as long as the handlers and parameters of all steps are the same. Raises what
        ``submit`` raises for these arguments.
        """
        ...

    async def forget(self, uri: str, source: str) -> bool:
        """Remove a document that its source has no more: with its last URI also its bytes, runs
        and artifacts. False when there is none.

        Raises DurableError while runs of it are not final. A second call returns False.
        """
        ...

    async def status(self, group_id: int) -> RunGroupStats:
        """Statistics of the group; may already be stale. Raises LookupError when unknown."""
        ...

    def watch(self, group_id: int) -> AsyncIterator[RunGroupStats]:
        """The statistics now and after each change, until the group is final.

        Changes may be coalesced; the final statistics are always delivered. Watching holds no
        resource: stop at any time, watch again from anywhere.
        """
        ...

    async def failures(self, group_id: int, *, limit: int = 1000) -> Sequence[RunFailure]:
        """The runs of the group that failed, with their reasons; oldest first."""
        ...

    def working(
        self, consumers: Mapping[str, int] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """A worker in this process while the block lasts; None: the configured pools.

        Should it die, ``watch`` raises.

        At the end running steps are waited for as long as configured, the rest is given back.
        """
        ...

    async def retry(self, group_id: int, *, hard: bool = False) -> int:
        """Make failed and cancelled runs claimable again and reopen the group; how many runs.

        ``hard`` takes every run that is not completed. Nothing to retry is 0.
        """
        ...

    async def cancel(self, group_id: int, *, reason: str = "") -> int:
        """Cancel what is not final; how many runs. Running steps are requested to stop.

        A second call finds nothing left and returns 0.
        """
        ...
