"""One batch until each of its items succeeded or was tried often enough."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import anyio
from attrs import frozen

from lexigram import clock
from lexigram.concurrency import call
from lexigram.contracts.core.result import Err, Ok
from lexigram.contracts.infra.resilience.protocols import CircuitBreakerProtocol
from lexigram.workflow._results import is_err, is_ok, may_retry
from lexigram.workflow.bulk.errors import BulkOperationError
from lexigram.workflow.bulk.models import BulkBatchResult, BulkItemError
from lexigram.workflow.config import BulkOperationConfig

T = TypeVar("T")
R = TypeVar("R")

Processor = Callable[[list[T]], Awaitable[Sequence[Any]]]

# Of the wait before a retry: 2.0 ** 1024 is no number.
MAX_DOUBLINGS = 60


@frozen
class FailedItems(Generic[T]):
    """A batch after its first try: what came, and the places that failed."""

    batch_id: int
    items: list[T]
    answers: list[Any]
    failed: list[int]
    start: float


class Attempts(Generic[T, R]):
    """Calls the processor for a batch, and again for the items that failed.

    A slot is held while the processor works and not while a retry waits.
    """

    def __init__(
        self,
        processor: Processor[T],
        config: BulkOperationConfig,
        breaker: CircuitBreakerProtocol | None,
    ) -> None:
        self._processor = processor
        self._breaker = breaker
        self._retries = config.retry_attempts
        self._delay = config.retry_delay
        self._slots = asyncio.Semaphore(config.max_concurrency)

    async def run(self, batch_id: int, items: list[T]) -> BulkBatchResult[T, R]:
        """The finished batch; what the processor raised is the error of all items it was given."""
        begun = await self.first(batch_id, items)
        return begun if isinstance(begun, BulkBatchResult) else await self.again(begun, None)

    async def first(self, batch_id: int, items: list[T]) -> BulkBatchResult[T, R] | FailedItems[T]:
        """The first try: the finished batch, or what is to be tried again."""
        start = clock.monotonic()
        async with self._slots:
            answers, failed = await self._once(items)
        if not failed:
            return BulkBatchResult(batch_id, items, answers, [], start, clock.monotonic())
        return FailedItems(batch_id, items, answers, failed, start)

    async def again(
        self, batch: FailedItems[T], note: Callable[[list[int]], Awaitable[None]] | None
    ) -> BulkBatchResult[T, R]:
        """The other tries; after each, ``note`` gets the places that failed again."""
        answers: list[Any] = batch.answers
        failed, hopeless = _sort_out(batch.failed, answers)
        tries = 0
        while failed and tries < self._retries:
            await anyio.sleep(self._delay * 2.0 ** min(tries, MAX_DOUBLINGS))
            tries += 1
            async with self._slots:
                given, still = await self._once([batch.items[place] for place in failed])
            for place, answer in zip(failed, given, strict=True):
                answers[place] = answer
            failed, others = _sort_out([failed[index] for index in still], answers)
            hopeless += others
            if note is not None and failed and tries < self._retries:
                await note(sorted([*failed, *hopeless]))
        failed = sorted([*failed, *hopeless])
        errors = [_item_error(batch.batch_id, place, answers[place], tries) for place in failed]
        for place in failed:
            answers[place] = None
        end = clock.monotonic()
        return BulkBatchResult(
            batch.batch_id, batch.items, answers, errors, batch.start, end, tries
        )

    async def _once(self, items: list[T]) -> tuple[list[Any], list[int]]:
        """An answer per item, and the places of those that are failures."""
        try:
            given: Any
            if self._breaker is None:
                given = await call(self._processor, items)
            else:
                given = await call(self._breaker.call, self._processor, items)
            answers: list[Any] = list(given)
            if len(answers) != len(items):
                raise BulkOperationError(
                    f"the processor gave {len(answers)} results for {len(items)} items",
                    hint="return one result per item, in the order of the items",
                )
        except Exception as failure:  # noqa: BLE001 - the boundary: it is the error of the items
            return [failure] * len(items), list(range(len(items)))
        # Kinds first: a batch without failures costs one pass in C.
        kinds = set(map(type, answers))
        if Ok in kinds:
            answers = [_unwrap(answer) for answer in answers]
        if not any(kind is Err or issubclass(kind, Exception) for kind in kinds):
            return answers, []
        places = [
            place
            for place, answer in enumerate(answers)
            if type(answer) is Err or isinstance(answer, Exception)
        ]
        return answers, places


def _sort_out(places: Sequence[int], answers: Sequence[Any]) -> tuple[list[int], list[int]]:
    """The failed places that are tried again, and those that no attempt can help."""
    again = [place for place in places if may_retry(answers[place])]
    return again, [place for place in places if place not in again]


def _unwrap(answer: Any) -> Any:
    return answer.value if is_ok(answer) else answer


def failure_of(answer: object) -> object:
    """What went wrong: an exception, or what an Err holds."""
    return answer.error if is_err(answer) else answer


def _item_error(batch_id: int, place: int, answer: object, tries: int) -> BulkItemError:
    failure = failure_of(answer)
    return BulkItemError(
        batch_id, str(failure), type(failure).__name__, tries, clock.timestamp(), place
    )
