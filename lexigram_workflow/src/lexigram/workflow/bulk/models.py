"""Results and metrics of a bulk operation."""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar

from attrs import define, field, frozen

from lexigram import clock

T = TypeVar("T")
R = TypeVar("R")

# Errors kept in the metrics; an endless operation must not fill the memory.
KEPT_ERRORS = 1000


class BulkOperationState(StrEnum):
    """Where an operation is; the last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@frozen
class BulkItemError:
    """Why one item failed after the last try."""

    batch_id: int
    error: str
    error_type: str
    retry_count: int
    # seconds since 1970-01-01 UTC
    timestamp: float
    # its place in ``BulkBatchResult.items``
    index: int = 0


@define
class BulkBatchResult(Generic[T, R]):
    """A finished batch: ``results[i]`` belongs to ``items[i]`` and is None where that failed."""

    batch_id: int
    items: list[T]
    results: list[R | None]
    errors: list[BulkItemError]
    # seconds of a clock that never goes back
    start_time: float
    end_time: float
    retry_count: int = 0

    @property
    def duration(self) -> float:
        """Seconds, waits between tries included."""
        return self.end_time - self.start_time

    @property
    def success_count(self) -> int:
        """Items that succeeded."""
        return len(self.items) - len(self.errors)

    @property
    def error_count(self) -> int:
        """Items that failed."""
        return len(self.errors)

    @property
    def is_successful(self) -> bool:
        """True when every item succeeded."""
        return not self.errors

    def succeeded(self) -> list[tuple[T, R]]:
        """Items with their results, those that failed left out."""
        failed = {error.index for error in self.errors}
        pairs = enumerate(zip(self.items, self.results, strict=True))
        return [pair for index, pair in pairs if index not in failed]  # type: ignore[misc]


@define
class BulkOperationMetrics:
    """Metrics of an operation. Totals of a stream grow while it is read."""

    total_items: int = 0
    processed_items: int = 0
    successful_items: int = 0
    failed_items: int = 0
    # finished by an earlier run of the operation; not counted as processed
    skipped_items: int = 0
    total_batches: int = 0
    completed_batches: int = 0
    # batches with at least one item that failed
    failed_batches: int = 0
    start_time: float | None = None
    end_time: float | None = None
    total_retries: int = 0
    average_batch_time: float = 0.0
    # the latest thousand
    errors: list[BulkItemError] = field(factory=list[BulkItemError])

    def record_start(self, items: int, batches: int) -> None:
        """The operation begins; 0 where the number is not known."""
        self.start_time = clock.monotonic()
        self.total_items, self.total_batches = items, batches

    def record_end(self) -> None:
        """The operation ended."""
        self.end_time = clock.monotonic()

    def record_batch_result(self, result: BulkBatchResult[T, R]) -> None:
        """A batch is finished."""
        failed = len(result.errors)
        size = len(result.items)
        self.processed_items += size
        self.successful_items += size - failed
        self.completed_batches += 1
        self.total_retries += result.retry_count
        spent = result.end_time - result.start_time
        self.average_batch_time += (spent - self.average_batch_time) / self.completed_batches
        if failed:
            self.failed_items += failed
            self.failed_batches += 1
            self.errors = (self.errors + result.errors)[-KEPT_ERRORS:]

    def record_error(self, error: BaseException) -> None:
        """Something went wrong outside of any batch."""
        text = BulkItemError(-1, str(error), type(error).__name__, 0, clock.timestamp())
        self.errors = [*self.errors, text][-KEPT_ERRORS:]

    @property
    def duration(self) -> float:
        """Seconds so far, or in all."""
        if self.start_time is None:
            return 0.0
        end = clock.monotonic() if self.end_time is None else self.end_time
        return end - self.start_time

    @property
    def success_rate(self) -> float:
        """Percent of the items that were processed; 100 before the first."""
        if not self.processed_items:
            return 100.0
        return 100.0 * self.successful_items / self.processed_items

    @property
    def throughput(self) -> float:
        """Items per second."""
        return self.processed_items / self.duration if self.duration > 0 else 0.0
