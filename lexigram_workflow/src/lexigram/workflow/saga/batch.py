"""Many sagas, a few at a time, going on where an interrupted batch stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import anyio
from attrs import frozen

from lexigram.concurrency import call
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.core.result import Ok, Result
from lexigram.contracts.workflow.protocols import SagaStoreProtocol
from lexigram.contracts.workflow.types import SagaState
from lexigram.workflow.saga.base import AbstractSaga
from lexigram.workflow.saga.errors import SagaDefinitionError


@frozen
class SagaOutcome:
    """How one saga of a batch ended."""

    saga_id: str
    # None: an earlier run of the batch ended it
    result: Result[None, LexigramError] | None


@frozen
class SagaBatchReport:
    """How a batch went, one outcome per saga in their order."""

    outcomes: tuple[SagaOutcome, ...]

    @property
    def executed(self) -> int:
        """Sagas that completed now."""
        return sum(isinstance(outcome.result, Ok) for outcome in self.outcomes)

    @property
    def skipped(self) -> int:
        """Sagas that an earlier run of the batch ended."""
        return sum(outcome.result is None for outcome in self.outcomes)

    @property
    def failures(self) -> dict[str, LexigramError]:
        """Why sagas did not complete, by their id."""
        ended = ((outcome.saga_id, outcome.result) for outcome in self.outcomes)
        return {name: end.unwrap_err() for name, end in ended if end is not None and end.is_err()}


class SagaBatchProcessor:
    """Executes sagas, up to ``batch_size`` at once; one that fails does not stop the others.

    After each saga its end is stored, under ``<batch_id>:checkpoint``: a second run
    with the same sagas and id leaves those out. A saga that was cut off is executed again, so
    with its own store it resumes.
    """

    def __init__(self, store: SagaStoreProtocol, *, batch_size: int = 50) -> None:
        if batch_size < 1:
            raise SagaDefinitionError("batch_size must be at least 1")
        self._store = store
        self._batch_size = batch_size

    async def process_batch(self, sagas: Sequence[AbstractSaga[Any]], batch_id: str) -> int:
        """``run``, and how many completed: a failed saga does not count."""
        return (await self.run(sagas, batch_id)).executed

    async def run(self, sagas: Sequence[AbstractSaga[Any]], batch_id: str) -> SagaBatchReport:
        """Execute those that have not ended yet; store errors are raised."""
        ids = [saga.get_id() for saga in sagas]
        if len(set(ids)) < len(ids):
            raise SagaDefinitionError("two sagas of the batch have the same id")
        stored = await self._store.load(_key(batch_id))
        # All up to here ended, and of those after it the ones in ``ended``.
        last = -1 if stored is None else int(stored[1]["last_index"])
        ended = set[int]() if stored is None else set(stored[1].get("ended", ()))
        results: dict[int, Result[None, LexigramError]] = {}
        saving = anyio.Lock()
        host = asyncio.current_task()

        async def one(index: int) -> None:
            nonlocal last
            results[index] = await call(sagas[index].execute, host=host)
            async with saving:
                ended.add(index)
                while last + 1 in ended:
                    last += 1
                    ended.discard(last)
                data = {"last_index": last, "ended": sorted(ended)}
                await self._store.save(_key(batch_id), SagaState.RUNNING, data)

        left = iter([at for at in range(last + 1, len(sagas)) if at not in ended])

        async def work() -> None:
            for index in left:
                await one(index)

        await _side_by_side(work, min(self._batch_size, len(sagas)))
        return SagaBatchReport(
            tuple(SagaOutcome(saga_id, results.get(at)) for at, saga_id in enumerate(ids))
        )

    async def clear_checkpoint(self, batch_id: str) -> None:
        """Forget which sagas ended; unknown is fine."""
        await self._store.delete(_key(batch_id))


async def _side_by_side(work: Any, count: int) -> None:
    try:
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(work)
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:  # a store that failed once is one error
            raise errors.exceptions[0] from None
        raise


def _key(batch_id: str) -> str:
    return f"{batch_id}:checkpoint"
