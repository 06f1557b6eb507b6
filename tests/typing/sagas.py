"""Read by the type checkers only: sagas, bulk operations and state machines keep their contracts."""

from collections.abc import AsyncGenerator
from typing import Any, assert_type

from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.core.result import Result
from lexigram.contracts.workflow import (
    BulkCheckpointStoreProtocol,
    BulkProcessorProtocol,
    ContentCheckpointStoreProtocol,
    LeasingBulkCheckpointStoreProtocol,
    LeasingSagaStoreProtocol,
    SagaProtocol,
    SagaStoreProtocol,
    StateMachineProtocol,
    StatePersistenceProtocol,
)
from lexigram.sql import Database
from lexigram.workflow.bulk import (
    BulkBatchResult,
    BulkOperation,
    CacheBulkCheckpoints,
    SqlBulkCheckpoints,
    bulk_map,
)
from lexigram.workflow.checkpoint import (
    CacheContentCheckpointStore,
    DatabaseContentCheckpointStore,
    InMemoryContentCheckpointStore,
)
from lexigram.workflow.saga import AbstractSaga, InMemorySagaStore, SqlSagaStore
from lexigram.workflow.state import (
    DatabaseStatePersistence,
    InMemoryStatePersistence,
    State,
    StateMachine,
)


class Order(AbstractSaga[str]):
    def get_id(self) -> str:
        return "order"


async def contracts(database: Database, cache: Any) -> None:
    sagas: list[SagaStoreProtocol] = [InMemorySagaStore(), SqlSagaStore(database)]
    lending: list[LeasingSagaStoreProtocol] = [InMemorySagaStore(), SqlSagaStore(database)]
    states: list[StatePersistenceProtocol] = [
        InMemoryStatePersistence(),
        DatabaseStatePersistence(database),
    ]
    outputs: list[ContentCheckpointStoreProtocol] = [
        InMemoryContentCheckpointStore(),
        CacheContentCheckpointStore(cache),
        DatabaseContentCheckpointStore(database),
    ]
    marks: list[BulkCheckpointStoreProtocol] = [
        CacheBulkCheckpoints(cache),
        SqlBulkCheckpoints(database),
    ]
    lending_marks: LeasingBulkCheckpointStoreProtocol = SqlBulkCheckpoints(database)
    machine: StateMachineProtocol = StateMachine([State("a")], "a", states[0], "m")
    saga: SagaProtocol = Order(sagas[0])
    processor: BulkProcessorProtocol = BulkOperation[int, str](checkpoint_store=marks[0])


async def values() -> None:
    async def text(item: int) -> str:
        return str(item)

    assert_type(await bulk_map(text, [1, 2]), list[str])
    assert_type(await Order().execute(), Result[None, LexigramError])
    batches = BulkOperation[int, str]().execute([1])
    assert_type(batches, AsyncGenerator[BulkBatchResult[int, str], None])
