"""map, filter and reduce over many items with the means of a bulk operation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, TypeVar

import anyio

from lexigram.concurrency import call, is_retryable
from lexigram.contracts.core.result import Err
from lexigram.workflow.bulk._batches import Batches
from lexigram.workflow.bulk.errors import BulkOperationError, BulkOperationTimeoutError
from lexigram.workflow.bulk.models import BulkBatchResult
from lexigram.workflow.bulk.operation import BulkOperation
from lexigram.workflow.config import BulkOperationConfig

T = TypeVar("T")
R = TypeVar("R")


async def bulk_map(
    func: Callable[[T], Awaitable[R]],
    items: Iterable[T] | AsyncIterable[T],
    config: BulkOperationConfig | None = None,
) -> list[R]:
    """``await func(item)`` for every item; the results in the order of the items.

    Raises BulkOperationError with ``details["errors"]`` when an item failed after the last try.
    """
    operation: BulkOperation[T, R] = BulkOperation(config, _each(func))
    batches: dict[int, list[Any]] = {}
    async with aclosing(operation.execute(items)) as results:
        async for batch in results:
            batches[batch.batch_id] = batch.results
    if operation.metrics.failed_items:
        first = operation.metrics.errors[0]
        raise BulkOperationError(
            f"{operation.metrics.failed_items} of {operation.metrics.processed_items} items "
            f"failed, for example: {first.error_type}: {first.error}",
            details={"errors": operation.metrics.errors},
        )
    return [result for batch_id in sorted(batches) for result in batches[batch_id]]


async def bulk_filter(
    items: Iterable[T] | AsyncIterable[T],
    predicate: Callable[[T], Awaitable[bool]],
    config: BulkOperationConfig | None = None,
) -> AsyncGenerator[BulkBatchResult[T, T], None]:
    """Batches of the items for which ``await predicate(item)`` is true, as they finish.

    ``results`` has the items that passed; ``items`` and ``errors`` are those of the whole batch.
    """
    operation: BulkOperation[T, bool] = BulkOperation(config, _each(predicate))
    async with aclosing(operation.execute(items)) as results:
        async for batch in results:
            passed: list[T | None] = [item for item, keep in batch.succeeded() if keep]
            yield BulkBatchResult(
                *(batch.batch_id, batch.items, passed, batch.errors),
                *(batch.start_time, batch.end_time, batch.retry_count),
            )


async def bulk_reduce(
    items: Iterable[T] | AsyncIterable[T],
    reducer: Callable[[R, T], Awaitable[R]],
    initial: R,
    config: BulkOperationConfig | None = None,
) -> R:
    """``await reducer(so_far, item)`` over all items, in their order, one after the other.

    A call that raises is tried again as ``config`` says; what the last try raises is raised.
    """
    settings = config or BulkOperationConfig()
    batches = Batches(items, settings.batch_size)
    so_far = initial
    try:
        with anyio.fail_after(settings.timeout):
            while not batches.is_over():
                for item in await call(batches.next):
                    so_far = await _reduce(reducer, so_far, item, settings)
    except TimeoutError as error:
        raise BulkOperationTimeoutError(
            f"not finished within {settings.timeout:g} s", hint="raise timeout"
        ) from error
    finally:
        with anyio.CancelScope(shield=True):
            await batches.close()
    return so_far


async def _reduce(
    reducer: Callable[[R, T], Awaitable[R]], so_far: R, item: T, config: BulkOperationConfig
) -> R:
    for tries in range(config.retry_attempts):
        try:
            return await call(reducer, so_far, item)
        except Exception as error:
            if not is_retryable(error):
                raise
            await anyio.sleep(config.retry_delay * 2.0**tries)
    return await call(reducer, so_far, item)


def _each(func: Callable[[T], Awaitable[Any]]) -> Callable[[list[T]], Awaitable[list[Any]]]:
    async def process(items: list[T]) -> list[Any]:
        answers: list[Any] = []
        for item in items:
            try:
                answers.append(await call(func, item))
            except Exception as error:  # noqa: BLE001 - the boundary: it is the item's
                answers.append(Err(error))
        return answers

    return process
