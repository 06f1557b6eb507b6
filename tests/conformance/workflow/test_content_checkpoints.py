"""What every store of content checkpoints and of bulk checkpoints promises, on each we ship."""

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from lexigram.cache import MemoryCache
from lexigram.contracts.workflow import (
    BulkCheckpointStoreProtocol,
    BulkOperationBusyError,
    ContentCheckpointEntry,
    ContentCheckpointKey,
    ContentCheckpointStoreProtocol,
    LeasingBulkCheckpointStoreProtocol,
)
from lexigram.workflow.bulk import (
    BulkOperation,
    BulkOperationConfig,
    BulkOperationError,
    BulkOperationState,
    CacheBulkCheckpoints,
    SqlBulkCheckpoints,
)
from lexigram.workflow.checkpoint import (
    CacheContentCheckpointStore,
    DatabaseContentCheckpointStore,
    InMemoryContentCheckpointStore,
)

pytestmark = pytest.mark.anyio
POSTGRES = pytest.param("postgres", marks=pytest.mark.service("postgresql"))
REDIS = pytest.param("redis", marks=pytest.mark.service("redis"))
MOMENT = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture(params=["memory", "cache", "sqlite", POSTGRES])
def outputs(request):
    if request.param == "memory":
        return InMemoryContentCheckpointStore()
    if request.param == "cache":
        return CacheContentCheckpointStore(MemoryCache())
    return DatabaseContentCheckpointStore(request.getfixturevalue(request.param))


@pytest.fixture(params=["cache", "sqlite", POSTGRES, REDIS])
def marks(request):
    if request.param == "cache":
        return CacheBulkCheckpoints(MemoryCache())
    if request.param == "redis":
        return CacheBulkCheckpoints(request.getfixturevalue("redis"))
    return SqlBulkCheckpoints(request.getfixturevalue(request.param))


def a_key(stage="parse", tenant=None, **inputs):
    return ContentCheckpointKey.compute(stage, tenant, inputs, "1", {"lang": "en"})


def an_entry(output, at=MOMENT, blob=None):
    return ContentCheckpointEntry(output, blob, at, "1", 12, {"by": "test"})


async def test_an_output_comes_back_equal_and_only_under_its_key(outputs):
    assert isinstance(outputs, ContentCheckpointStoreProtocol)
    entry = an_entry({"a": [1, None, "é"]})
    await outputs.set(a_key(x=1), entry)
    assert await outputs.get(a_key(x=1)) == entry
    for other in (a_key(x=2), a_key(tenant="t", x=1), a_key("chunk", x=1)):
        assert await outputs.get(other) is None


async def test_an_evicted_output_is_gone(outputs):
    await outputs.set(a_key(x=1), an_entry(1))
    await outputs.evict(a_key(x=1))
    await outputs.evict(a_key(x=1))
    assert await outputs.get(a_key(x=1)) is None


async def test_outputs_of_a_stage_are_listed_latest_first(outputs):
    if isinstance(outputs, CacheContentCheckpointStore):
        assert list(await outputs.list_by_stage("parse")) == []
        return
    for number in range(3):
        at = MOMENT + timedelta(seconds=number)
        await outputs.set(a_key(x=number), an_entry(number, at))
    await outputs.set(a_key(tenant="t", x=1), an_entry("t"))
    await outputs.set(a_key("parse2", x=1), an_entry("p"))
    assert [entry.output for entry in await outputs.list_by_stage("parse")] == [2, 1, 0]
    assert [entry.output for entry in await outputs.list_by_stage("parse", limit=1)] == [2]
    assert [entry.output for entry in await outputs.list_by_stage("parse", "t")] == ["t"]


def test_a_table_name_is_not_a_place_for_statements():
    with pytest.raises(ValueError, match="cannot be the name"):
        DatabaseContentCheckpointStore(object(), "x; DROP TABLE y")


async def test_an_operation_keeps_the_batch_size_it_was_begun_with(marks):
    assert isinstance(marks, BulkCheckpointStoreProtocol)
    assert await marks.begin("op", 10) == 10
    assert await marks.begin("op", 20) == 10


async def test_marks_come_back_with_the_places_that_failed(marks):
    await marks.mark("op", 0)
    await marks.mark("op", 7, (1, 3))
    await marks.mark("other", 1)
    assert await marks.finished("op", 0, 999) == {0: (), 7: (1, 3)}
    assert await marks.finished("op", 1, 6) == {}
    await marks.mark("op", 7, (3,))
    assert await marks.finished("op", 7, 7) == {7: (3,)}


async def test_a_cleared_operation_begins_anew(marks):
    for name in ("op", "op:1", "o*", "other"):
        await marks.begin(name, 10)
        for number in (0, 1, 5000):
            await marks.mark(name, number)
    for name in ("op", "op", "o*"):
        await marks.clear(name)
    for name in ("op", "o*"):
        assert await marks.finished(name, 0, 999) == {}
        assert await marks.finished(name, 5000, 5000) == {}
    for name in ("op:1", "other"):
        assert len(await marks.finished(name, 0, 999)) == 2
    assert await marks.begin("op", 20) == 20


# --- stores that lend operations ---


@pytest.fixture(params=["sqlite", POSTGRES])
def lending(request):
    return SqlBulkCheckpoints(request.getfixturevalue(request.param))


async def test_an_operation_is_lent_to_one_owner(lending):
    assert isinstance(lending, LeasingBulkCheckpointStoreProtocol)
    name = "o" * 255
    await lending.claim(name, "ann", 60)
    await lending.claim(name, "ann", 60)
    with pytest.raises(BulkOperationBusyError, match="is worked on by ann"):
        await lending.claim(name, "bob", 60)
    await lending.claim("other", "bob", 60)
    assert await lending.renew(name, "ann", 60)
    assert not await lending.renew(name, "bob", 60)
    await lending.release(name, "bob")
    with pytest.raises(BulkOperationBusyError):
        await lending.claim(name, "bob", 60)
    await lending.release(name, "ann")
    await lending.claim(name, "bob", 60)
    await lending.claim(name, "eve", 60, take_over=True)
    assert not await lending.renew(name, "bob", 60)


async def test_a_lease_that_is_over_is_free(lending):
    await lending.claim("op", "ann", 0.01)
    with anyio.fail_after(60):
        while await lending.renew("op", "ann", 0.001):  # noqa: ASYNC110 - a lease tells nobody
            await anyio.sleep(0.01)
    await lending.claim("op", "bob", 60)


async def no_more(operation):
    return [batch async for batch in operation.execute(range(100), operation_id="op")]


async def test_of_two_runs_of_one_operation_the_second_is_refused_and_does_nothing(lending):
    handled, goes_on = [], anyio.Event()

    async def process(items):
        handled.extend(items)
        await goes_on.wait()
        return items

    def made(**settings):
        return BulkOperation(processor=process, checkpoint_store=lending, **settings)

    async def first():
        assert len(await no_more(made())) == 10

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        with anyio.fail_after(60):
            while len(handled) < 50:  # noqa: ASYNC110 - until five batches are worked on
                await anyio.sleep(0.01)
        before = list(handled)
        second = made()
        with pytest.raises(BulkOperationBusyError, match="'op' is worked on by"):
            await no_more(second)
        assert handled == before
        assert second.state is BulkOperationState.FAILED
        goes_on.set()
    assert sorted(handled) == list(range(100))
    # It was given back: the next one need not wait for the lease, and finds nothing to do.
    assert await no_more(made()) == []


async def test_a_run_that_was_taken_over_stops(lending):
    begun, stopped = anyio.Event(), []

    async def process(items):
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.extend(items)

    config = BulkOperationConfig(batch_size=10, max_concurrency=1)
    operation = BulkOperation(config, process, checkpoint_store=lending, lease=0.3)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:

            async def run():
                with pytest.raises(BulkOperationBusyError, match="by another owner"):
                    await no_more(operation)

            group.start_soon(run)
            await begun.wait()
            await lending.claim("op", "eve", 60, take_over=True)
    assert stopped == list(range(10))
    assert operation.state is BulkOperationState.FAILED


async def test_another_batch_size_gives_the_operation_back(lending):
    await lending.begin("op", 7)
    with pytest.raises(BulkOperationError, match="batch_size=7"):
        await no_more(BulkOperation(processor=list, checkpoint_store=lending))
    await lending.claim("op", "ann", 60)


def test_a_lease_has_a_length():
    with pytest.raises(BulkOperationError, match="longer than 0 s"):
        BulkOperation(lease=0)
