"""Hand documents to a fleet of workers and follow them, without knowing the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable


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

    def to_dict(self) -> dict[str, Any]:
        """The seven figures as JSON-ready data."""
        return {
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
        name: str | None = None,
        priority: int = 0,
        tenant_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """Store documents and runs in one transaction; the id of the group.

        The defaults of the engine stand in for workflow and parameters. A second call with
        the same ``idempotency_key`` returns the first group; without a key it makes another.
        Raises LookupError for an unknown workflow or parameter set, and then stores nothing.
        """
        ...

    async def status(self, group_id: int) -> RunGroupStats:
        """How far the group is; old when it arrives. Raises LookupError when unknown."""
        ...

    def watch(self, group_id: int) -> AsyncIterator[RunGroupStats]:
        """The figures now and whenever they change, until the group is final.

        Changes may be folded into one; the final figures always come. Watching holds nothing:
        stop at any time, watch again from anywhere.
        """
        ...

    async def retry(self, group_id: int, *, hard: bool = False) -> int:
        """Make failed and cancelled runs claimable again and reopen the group; how many runs.

        ``hard`` takes every run that is not completed. Nothing to retry is 0.
        """
        ...

    async def cancel(self, group_id: int, *, reason: str = "") -> int:
        """Cancel what is not final; how many runs. Running steps are told and not waited for.

        A second call finds nothing left and returns 0.
        """
        ...
