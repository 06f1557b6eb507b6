"""Bulk operations: the window, errors, retries, breakers, resume, cancel, figures."""

import itertools
from contextlib import aclosing

import anyio
import anyio.lowlevel
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.retries import HOPELESS

from lexigram.cache import MemoryCache
from lexigram.config import load_config
from lexigram.contracts.core.result import Err, Ok
from lexigram.contracts.infra.resilience import CircuitBreakerConfig
from lexigram.contracts.workflow import BulkProcessorProtocol
from lexigram.testing.fakes import FakeMetrics
from lexigram.workflow.bulk import (
    BulkOperation,
    BulkOperationCancelledError,
    BulkOperationConfig,
    BulkOperationError,
    BulkOperationMetrics,
    BulkOperationState,
    BulkOperationTimeoutError,
    bulk_filter,
    bulk_map,
    bulk_reduce,
)
from lexigram.workflow.bulk.operation import SMALLEST_WINDOW

pytestmark = pytest.mark.anyio


def config(**settings):
    return BulkOperationConfig(**{"retry_delay": 0, "retry_attempts": 0, **settings})


async def double(items):
    return [item * 2 for item in items]


async def all_of(operation, items, **settings):
    return [batch async for batch in operation.execute(items, **settings)]


def results(batches):
    return sorted(itertools.chain.from_iterable(batch.results for batch in batches))


class Counted:
    """A stream that knows how far it was read."""

    def __init__(self, items):
        self.items = iter(items)
        self.read = 0
        self.is_closed = False

    def __aiter__(self):
        return self

    async def __anext__(self):
        await anyio.lowlevel.checkpoint()
        for item in self.items:
            self.read += 1
            return item
        raise StopAsyncIteration

    async def aclose(self):
        self.is_closed = True


async def generated(items):
    for item in items:
        await anyio.lowlevel.checkpoint()
        yield item


SOURCES = {
    "list": list,
    "generator": iter,
    "stream": generated,
}


@pytest.fixture(params=SOURCES)
def source(request):
    return SOURCES[request.param]


# --- streaming ---


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 105])
async def test_every_item_is_worked_on_once_whatever_the_source(source, count):
    seen = []

    async def process(items):
        seen.extend(items)
        return await double(items)

    operation = BulkOperation(config(), process)
    batches = await all_of(operation, source(range(count)))
    assert sorted(seen) == list(range(count))
    assert results(batches) == [item * 2 for item in range(count)]
    assert {len(batch.items) for batch in batches} <= {10, count % 10}
    assert operation.state is BulkOperationState.COMPLETED
    metrics = operation.metrics
    assert (metrics.total_items, metrics.processed_items) == (count, count)
    assert (metrics.successful_items, metrics.failed_items) == (count, 0)
    assert metrics.total_batches == metrics.completed_batches == len(batches)


async def test_the_first_batch_is_given_while_others_are_worked_on():
    gate = anyio.Event()

    async def process(items):
        if items[0]:
            await gate.wait()
        return items

    operation = BulkOperation(config(batch_size=1), process)
    stream = operation.execute(range(20))
    assert (await anext(stream)).items == [0]
    gate.set()
    assert len([batch async for batch in stream]) == 19


async def test_an_endless_source_is_read_no_further_than_the_window(source):
    counted = Counted(itertools.count())
    operation = BulkOperation(config(batch_size=2, max_concurrency=3, timeout=float("inf")), double)
    stream = operation.execute(counted)
    ahead = []
    for taken in range(1, 200):
        await anext(stream)
        ahead.append(counted.read - taken * 2)
    await stream.aclose()
    assert max(ahead) <= 2 * (SMALLEST_WINDOW + 1)
    assert counted.is_closed
    assert operation.state is BulkOperationState.CANCELLED


async def test_no_more_batches_than_allowed_are_worked_on_at_once(source):
    now = most = 0

    async def process(items):
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        now -= 1
        return items

    await all_of(BulkOperation(config(batch_size=1, max_concurrency=3), process), source(range(40)))
    assert most == 3


async def test_what_the_source_raises_is_raised():
    async def broken():
        yield 1
        raise OSError("line cut")

    operation = BulkOperation(config(batch_size=1), double)
    with pytest.raises(OSError, match="line cut"):
        await all_of(operation, broken())
    assert operation.state is BulkOperationState.FAILED

    def broken_too():
        yield 1
        raise OSError("file gone")

    with pytest.raises(OSError, match="file gone"):
        await all_of(BulkOperation(config(batch_size=1), double), broken_too())


# --- errors and retries ---


async def test_items_fail_one_by_one_and_only_those_are_tried_again():
    seen = []

    async def process(items):
        seen.append(list(items))
        return [
            Err(f"bad {n}") if n == 3 else ValueError("worse") if n == 5 else Ok(n) for n in items
        ]

    operation = BulkOperation(config(retry_attempts=2), process)
    (batch,) = await all_of(operation, range(10))
    assert seen == [list(range(10)), [3, 5], [3, 5]]
    assert batch.results == [0, 1, 2, None, 4, None, 6, 7, 8, 9]
    assert [(e.index, e.error, e.error_type, e.retry_count) for e in batch.errors] == [
        (3, "bad 3", "str", 2),
        (5, "worse", "ValueError", 2),
    ]
    assert (batch.success_count, batch.error_count, batch.is_successful) == (8, 2, False)
    assert [item for item, _ in batch.succeeded()] == [0, 1, 2, 4, 6, 7, 8, 9]
    assert (operation.metrics.failed_items, operation.metrics.total_retries) == (2, 2)


async def test_a_batch_that_raises_fails_all_its_items():
    async def process(items):
        raise KeyError("x")

    operation = BulkOperation(config(batch_size=100), process)
    (batch,) = await all_of(operation, range(100))
    assert batch.error_count == 100
    assert operation.metrics.failed_items == 100
    assert operation.metrics.failed_batches == 1
    assert operation.metrics.success_rate == 0.0


async def test_a_wrong_number_of_results_is_a_failure_that_says_so():
    async def process(items):
        return items[1:]

    (batch,) = await all_of(BulkOperation(config(), process), range(10))
    assert "gave 9 results for 10 items" in batch.errors[0].error


async def test_waiting_for_a_retry_holds_no_slot(monkeypatch):
    waiting, done = anyio.Event(), []

    async def sleep(seconds):
        if seconds:
            await waiting.wait()

    monkeypatch.setattr("lexigram.workflow.bulk._attempts.anyio.sleep", sleep)
    tried = []

    async def process(items):
        tried.append(items[0])
        if items == [0] and tried.count(0) == 1:
            raise ValueError
        return items

    settings = config(batch_size=1, max_concurrency=1, retry_attempts=1, retry_delay=7)
    async for batch in BulkOperation(settings, process).execute(range(5)):
        done.append(batch.batch_id)
        if len(done) == 4:
            waiting.set()
    assert done == [1, 2, 3, 4, 0]


async def test_delays_double(monkeypatch):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr("lexigram.workflow.bulk._attempts.anyio.sleep", sleep)

    async def process(items):
        raise ValueError

    await all_of(BulkOperation(config(retry_attempts=3, retry_delay=0.5), process), [1])
    assert waits == [0.5, 1.0, 2.0]


async def test_a_circuit_breaker_of_the_configuration_stops_calls():
    calls = 0

    async def process(items):
        nonlocal calls
        calls += 1
        raise ValueError

    settings = config(
        batch_size=1,
        max_concurrency=1,
        circuit_breaker_config=CircuitBreakerConfig(failure_threshold=3, timeout=None),
    )
    batches = await all_of(BulkOperation(settings, process), range(10))
    assert calls == 3
    assert {batch.errors[0].error_type for batch in batches} == {"ValueError", "CircuitOpenError"}


# --- ends ---


async def test_cancel_is_an_error_for_the_caller_and_stops_the_work():
    started, ended = [], []

    async def process(items):
        started.append(items[0])
        try:
            if items[0] > 2:
                await anyio.sleep_forever()
        finally:
            ended.append(items[0])
        return items

    operation = BulkOperation(config(batch_size=1), process)
    seen = []
    with pytest.raises(BulkOperationCancelledError) as cancelled:
        async for batch in operation.execute(range(100)):
            seen.append(batch.batch_id)
            if len(seen) == 3:
                await operation.cancel()
    assert "cancelled after 3 items" in cancelled.value.message
    assert operation.state is BulkOperationState.CANCELLED
    assert sorted(started) == sorted(ended)


async def test_cancel_reaches_a_caller_that_waits():
    async def process(items):
        await anyio.sleep_forever()

    operation = BulkOperation(config(), process)
    async with anyio.create_task_group() as group:
        group.start_soon(operation.cancel)
        with pytest.raises(BulkOperationCancelledError):
            await all_of(operation, range(10))
    with pytest.raises(BulkOperationError, match="cancelled"):
        await all_of(operation, range(10))


async def test_cancelled_before_it_began():
    operation = BulkOperation(config(), double)
    await operation.cancel()
    with pytest.raises(BulkOperationCancelledError):
        await all_of(operation, [1])


async def test_an_operation_that_takes_too_long_is_a_timeout_error():
    async def process(items):
        await anyio.sleep_forever()

    operation = BulkOperation(config(timeout=0.01), process)
    with pytest.raises(BulkOperationTimeoutError) as over:
        await all_of(operation, range(10))
    assert isinstance(over.value, TimeoutError)
    assert operation.state is BulkOperationState.FAILED


async def test_leaving_the_block_ends_what_is_worked_on():
    ended = anyio.Event()

    async def process(items):
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with BulkOperation(config(), process) as operation:
        async with anyio.create_task_group() as group:
            group.start_soon(all_of, operation, range(10))
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    assert ended.is_set()
    assert operation.state is BulkOperationState.CANCELLED


async def test_an_operation_is_used_once_and_needs_a_processor():
    operation = BulkOperation(config(), double)
    await all_of(operation, [1])
    with pytest.raises(BulkOperationError, match="is completed"):
        await all_of(operation, [1])
    with pytest.raises(BulkOperationError, match="no processor"):
        await all_of(BulkOperation(config()), [1])
    assert results(await all_of(BulkOperation(config()), [1], processor=double)) == [2]


async def test_one_batch_alone_is_a_processor_of_batches():
    operation = BulkOperation(config(), double)
    assert isinstance(operation, BulkProcessorProtocol)
    assert await operation.process_batch([1, 2]) == [2, 4]

    async def process(items):
        return [Err("no")]

    with pytest.raises(BulkOperationError, match="1 of 1 items failed"):
        await BulkOperation(config(), process).process_batch([1])


# --- watched ---


async def test_hooks_and_callbacks_are_told_and_cannot_break_the_work(caplog):
    told = []

    def hook(name):
        async def call(done, total, message):
            told.append((name, done, total))
            raise RuntimeError

        return call

    async def callback(metrics):
        assert isinstance(metrics, BulkOperationMetrics)
        told.append(("callback", metrics.processed_items))

    async def process(items):
        return [Err("no") if item == 15 else item for item in items]

    figures = FakeMetrics()
    operation = BulkOperation(
        config(max_concurrency=1),
        process,
        on_progress=hook("progress"),
        on_complete=hook("complete"),
        on_error=hook("error"),
        metrics=figures,
    )
    operation.add_progress_callback(callback)
    await all_of(operation, range(20))
    assert told == [
        *[("progress", 10, 20), ("callback", 10)],
        *[("progress", 20, 20), ("callback", 20), ("error", 20, 20)],
        ("complete", 20, 20),
    ]
    assert "a hook of a bulk operation failed" in caplog.text
    assert figures.counted("bulk.items", outcome="ok") == 19
    assert figures.counted("bulk.items", outcome="failed") == 1


async def test_progress_tracking_can_be_switched_off():
    told = []

    async def progress(done, total, message):
        told.append(done)

    settings = config(enable_progress_tracking=False)
    await all_of(BulkOperation(settings, double, on_progress=progress), range(20))
    assert told == []


def test_figures_before_and_without_items():
    metrics = BulkOperationMetrics()
    assert (metrics.success_rate, metrics.duration, metrics.throughput) == (100.0, 0.0, 0.0)
    metrics.record_error(ValueError("x"))
    assert metrics.errors[0].batch_id == -1


# --- resume ---


class Store(MemoryCache):
    """A cache that counts what is written."""

    def __init__(self):
        super().__init__()
        self.writes = []

    async def set(self, key, value, ttl=None):
        self.writes.append((key, value))
        return await super().set(key, value, ttl)


async def test_a_second_run_leaves_finished_batches_out_and_takes_up_failed_items():
    store, seen = Store(), []

    async def process(items):
        seen.extend(items)
        return [Err("no") if item in {7, 13} else item for item in items]

    def made(processor):
        return BulkOperation(config(max_concurrency=1), processor, checkpoint_store=store)

    with pytest.raises(BulkOperationCancelledError):
        operation = made(process)
        async for batch in operation.execute(range(100), operation_id="op"):
            if batch.batch_id == 4:
                await operation.cancel()
    done = set(seen)
    seen.clear()
    again = made(double_seen(seen))
    await all_of(again, range(100), operation_id="op")
    assert sorted(seen) == sorted({7, 13} | (set(range(100)) - done))
    assert again.metrics.skipped_items == 100 - len(seen)
    seen.clear()
    await all_of(made(double_seen(seen)), range(100), operation_id="op")
    assert seen == []


def double_seen(seen):
    async def process(items):
        seen.extend(items)
        return await double(items)

    return process


async def test_a_mark_is_one_small_write_however_far_the_operation_is():
    store = Store()
    operation = BulkOperation(config(batch_size=1), double, checkpoint_store=store)
    await all_of(operation, range(300), operation_id="op")
    marks = [value for key, value in store.writes if key.startswith("lexigram:workflow:bulk")]
    assert len(marks) == 301  # one to begin
    assert marks[1:] == [[]] * 300


async def test_another_batch_size_cannot_go_on_and_says_so():
    store = Store()
    await all_of(BulkOperation(config(), double, checkpoint_store=store), [1], operation_id="op")
    other = BulkOperation(config(batch_size=3), double, checkpoint_store=store)
    with pytest.raises(BulkOperationError, match="begun with batch_size=10"):
        await all_of(other, [1], operation_id="op")
    await other.clear_checkpoint("op")
    fresh = BulkOperation(config(batch_size=3), double, checkpoint_store=store)
    assert len(await all_of(fresh, [1], operation_id="op")) == 1


async def test_a_store_that_fails_stops_the_operation():
    class Broken(MemoryCache):
        async def set(self, key, value, ttl=None):
            if key.endswith(":3"):
                return Err(OSError("disk"))
            return await super().set(key, value, ttl)

    operation = BulkOperation(config(batch_size=1), double, checkpoint_store=Broken())
    with pytest.raises(OSError, match="disk"):
        await all_of(operation, range(10), operation_id="op")


@given(
    count=st.integers(0, 60),
    size=st.integers(1, 7),
    concurrency=st.integers(1, 4),
    stops=st.lists(st.integers(0, 20), max_size=4),
    stream=st.booleans(),
    failing=st.sets(st.integers(0, 59), max_size=5),
)
# Left while item 2 waits for its retry; item 3 of the same batch is done.
@example(count=4, size=2, concurrency=2, stops=[1], stream=False, failing={2})
async def test_resume_at_any_point_handles_every_item_once(
    count, size, concurrency, stops, stream, failing
):
    store, handled = MemoryCache(), []

    async def process(items):
        await anyio.lowlevel.checkpoint()  # where it may be cut off
        handled.extend(item for item in items if item not in failing)
        return [Err("no") if item in failing else item for item in items]

    for stop in [*stops, None]:
        if stop is None:
            failing = set()
        operation = BulkOperation(
            config(batch_size=size, max_concurrency=concurrency), process, checkpoint_store=store
        )
        items = generated(range(count)) if stream else range(count)
        async with aclosing(operation.execute(items, operation_id="op")) as run:
            taken = 0
            while taken != stop and await anext(run, None) is not None:
                taken += 1
    assert sorted(handled) == list(range(count))


# --- combinators ---


async def test_map_keeps_the_order_and_names_what_failed(source):
    async def square(item):
        await anyio.lowlevel.checkpoint()
        return item * item

    assert await bulk_map(square, source(range(95)), config()) == [n * n for n in range(95)]

    async def picky(item):
        if item == 42:
            raise ValueError("not this one")
        return item

    with pytest.raises(BulkOperationError, match="1 of 95 items failed.*not this one"):
        await bulk_map(picky, source(range(95)), config())


async def test_filter_gives_what_passed(source):
    async def even(item):
        return item % 2 == 0

    batches = [batch async for batch in bulk_filter(source(range(25)), even, config())]
    assert results(batches) == list(range(0, 25, 2))
    assert sum(len(batch.items) for batch in batches) == 25


async def test_reduce_folds_in_order_and_tries_again(source):
    calls = 0

    async def join(so_far, item):
        nonlocal calls
        calls += 1
        if item == 7 and calls == 8:
            raise ValueError
        return f"{so_far}{item}"

    settings = config(batch_size=3, retry_attempts=1)
    assert await bulk_reduce(source(range(10)), join, "", settings) == "0123456789"

    async def never(so_far, item):
        raise KeyError(item)

    with pytest.raises(KeyError):
        await bulk_reduce(source([1]), never, 0, settings)

    async def forever(so_far, item):
        await anyio.sleep_forever()

    with pytest.raises(BulkOperationTimeoutError):
        await bulk_reduce([1], forever, 0, config(timeout=0.01))


def test_a_circuit_breaker_can_be_described_in_a_file(tmp_path):
    (tmp_path / "application.yaml").write_text(
        "workflow:\n  batch_size: 7\n  circuit_breaker_config:\n    failure_threshold: 2\n"
    )
    loaded = load_config(BulkOperationConfig, base_path=tmp_path, env={})
    assert loaded.batch_size == 7
    assert loaded.circuit_breaker_config == CircuitBreakerConfig(failure_threshold=2)


@pytest.mark.parametrize("way", ["raise", "return"])
@pytest.mark.parametrize("make", HOPELESS)
async def test_an_item_whose_error_is_not_retryable_is_tried_once_and_others_as_often_as_said(
    make, way
):
    tried = []

    async def process(items):
        tried.extend(items)
        answers = [Err({"bad": make(), "flaky": OSError("down")}.get(i, 0)) for i in items]
        return [Ok(i) if i == "fine" else answer for i, answer in zip(items, answers, strict=True)]

    async def fail(items):
        tried.extend(items)
        raise make()

    operation = BulkOperation(
        config(retry_attempts=2, batch_size=3), process if way == "return" else fail
    )
    (batch,) = await all_of(operation, ["bad", "fine", "flaky"])
    assert tried.count("bad") == tried.count("fine") == 1
    assert tried.count("flaky") == (3 if way == "return" else 1)
    failed = [0, 2] if way == "return" else [0, 1, 2]
    assert [error.index for error in batch.errors] == failed
    assert batch.errors[0].error_type == type(make()).__name__


@pytest.mark.parametrize("make", HOPELESS)
async def test_a_reducer_whose_error_is_not_retryable_is_called_once(make):
    calls = []

    async def fail(so_far, item):
        calls.append(item)
        raise make()

    with pytest.raises(type(make())):
        await bulk_reduce([1], fail, 0, config(retry_attempts=3))
    assert calls == [1]


async def test_many_retries_of_an_item_are_made_and_end():
    calls = []

    async def process(items):
        calls.append(items)
        raise ValueError("no")

    operation = BulkOperation(config(retry_attempts=1100), process)
    (batch,) = await all_of(operation, [1])
    assert (len(calls), batch.error_count) == (1101, 1)
