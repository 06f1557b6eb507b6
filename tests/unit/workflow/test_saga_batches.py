"""Many sagas, and sagas whose stages are remembered by content."""

import json
from datetime import UTC, datetime

import pytest
from tests.crashes import Crash

from lexigram.blobs import BlobConfig, BlobStore
from lexigram.contracts.core.result import Err, Ok
from lexigram.contracts.workflow import SagaState
from lexigram.workflow.checkpoint import InMemoryContentCheckpointStore
from lexigram.workflow.saga import (
    AbstractSaga,
    ContentAddressedSaga,
    ContentAddressedStage,
    InMemorySagaStore,
    SagaBatchProcessor,
    SagaDefinitionError,
    SagaStep,
)

pytestmark = pytest.mark.anyio


class Order(AbstractSaga):
    def __init__(self, number, log, store=None, answer=None):
        super().__init__(store)
        self.number = number

        async def pay():
            if answer is Crash:
                raise Crash
            log.append(number)
            return answer or Ok(None)

        self.add_step(SagaStep("pay", pay, max_retries=0))

    def get_id(self):
        return f"order-{self.number}"


async def test_every_saga_has_a_result_and_failures_are_not_counted_as_executed():
    log = []
    sagas = [Order(n, log, answer=Err("no") if n % 3 == 0 else None) for n in range(7)]
    processor = SagaBatchProcessor(InMemorySagaStore(), batch_size=2)
    report = await processor.run(sagas, "b")
    assert (report.executed, report.skipped) == (4, 0)
    assert sorted(report.failures) == ["order-0", "order-3", "order-6"]
    assert [outcome.saga_id for outcome in report.outcomes] == [f"order-{n}" for n in range(7)]
    assert await SagaBatchProcessor(InMemorySagaStore()).process_batch(sagas[:2], "c") == 1


async def test_a_batch_goes_on_after_the_last_saga_that_ended():
    store, log = InMemorySagaStore(), []
    first = [Order(n, log, answer=Crash if n == 4 else None) for n in range(8)]
    with pytest.raises(BaseException):  # noqa: B017 - the process is gone
        await SagaBatchProcessor(store, batch_size=1).run(first, "b")
    assert await store.load("b:checkpoint") == (SagaState.RUNNING, {"last_index": 3, "ended": []})
    report = await SagaBatchProcessor(store, batch_size=3).run(
        [Order(n, log) for n in range(8)], "b"
    )
    assert sorted(log) == list(range(8))
    assert (report.executed, report.skipped) == (4, 4)


async def test_a_batch_begins_anew_when_its_checkpoint_is_cleared():
    store, log = InMemorySagaStore(), []
    processor = SagaBatchProcessor(store)
    await processor.run([Order(1, log)], "b")
    await processor.clear_checkpoint("b")
    await processor.run([Order(1, log)], "b")
    assert log == [1, 1]


async def test_bad_batches_are_refused():
    with pytest.raises(SagaDefinitionError, match="at least 1"):
        SagaBatchProcessor(InMemorySagaStore(), batch_size=0)
    with pytest.raises(SagaDefinitionError, match="same id"):
        await SagaBatchProcessor(InMemorySagaStore()).run([Order(1, []), Order(1, [])], "b")


# --- content addressed ---


def stage(name, log, func=lambda inputs: len(inputs), **settings):
    async def handler(inputs):
        log.append((name, dict(inputs)))
        return func(inputs)

    return ContentAddressedStage(name, handler, settings.pop("version", "1"), **settings)


def book(checkpoints, log, name="book", **settings):
    saga = ContentAddressedSaga(name, checkpoints, **settings)
    saga.add_stage(stage("parse", log, lambda inputs: inputs["text"].split()))
    saga.add_stage(stage("count", log, lambda inputs: Ok(len(inputs["parse"])), reads=("parse",)))
    saga.add_stage(stage("title", log, lambda inputs: f"{inputs['count']} of {inputs['text']}"))
    return saga


async def test_stages_get_the_inputs_and_the_outputs_before_them():
    log = []
    saga = book(InMemoryContentCheckpointStore(), log)
    assert (await saga.execute({"text": "to be"})) == Ok(None)
    assert log == [
        ("parse", {"text": "to be"}),
        ("count", {"parse": ["to", "be"]}),
        ("title", {"text": "to be", "parse": ["to", "be"], "count": 2}),
    ]
    assert saga.outputs == {"parse": ["to", "be"], "count": 2, "title": "2 of to be"}


async def test_equal_work_is_done_once_and_other_inputs_are_other_work():
    checkpoints, log = InMemoryContentCheckpointStore(), []
    await book(checkpoints, log).execute({"text": "to be"})
    again = book(checkpoints, log, "second")
    await again.execute({"text": "to be"})
    assert len(log) == 3
    assert again.outputs["title"] == "2 of to be"
    await book(checkpoints, log, "third").execute({"text": "or not"})
    assert len(log) == 6
    await book(checkpoints, log, "fourth", tenant_id="t").execute({"text": "to be"})
    assert len(log) == 9


async def test_another_handler_version_or_setting_is_other_work():
    checkpoints, log = InMemoryContentCheckpointStore(), []
    saga = ContentAddressedSaga("s", checkpoints)
    for settings in ({}, {"version": "2"}, {"config_affecting_output": {"lang": "de"}}, {}):
        await saga.run_stage(stage("a", log, **settings), {"x": 1})
    assert len(log) == 3


async def test_a_crashed_saga_goes_on_with_its_inputs_and_does_no_stage_again():
    checkpoints, log, store = InMemoryContentCheckpointStore(), [], InMemorySagaStore()

    def made(crash):
        saga = ContentAddressedSaga("s", checkpoints, store=store)
        saga.add_stage(stage("a", log, lambda inputs: inputs["x"] + 1))

        def second(inputs):
            if crash:
                raise Crash
            return inputs["a"] * 10

        saga.add_stage(stage("b", log, second))
        return saga

    with pytest.raises(Crash):
        await made(crash=True).execute({"x": 1})
    saga = made(crash=False)
    assert (await saga.resume()) == Ok(None)
    assert saga.outputs == {"a": 2, "b": 20}
    assert [name for name, _ in log] == ["a", "b", "b"]


async def test_only_stages_that_ran_are_undone_and_their_outputs_forgotten():
    checkpoints, log, undone = InMemoryContentCheckpointStore(), [], []

    def undo(name):
        async def compensation():
            undone.append(name)

        return compensation

    def made():
        saga = ContentAddressedSaga("s", checkpoints)
        saga.add_stage(stage("a", log, compensation=undo("a")))
        saga.add_stage(stage("b", log, lambda _: Err("no"), compensation=undo("b"), max_retries=0))
        saga.add_stage(stage("c", log, compensation=undo("c")))
        return saga

    assert (await made().execute({"x": 1})).is_err()
    assert undone == ["a"]
    assert (await made().execute({"x": 1})).is_err()
    assert [name for name, _ in log] == ["a", "b", "a", "b"]


@pytest.mark.parametrize("output", [("a", 1), {"at": datetime(2026, 1, 2, tzinfo=UTC)}, {1: 2}])
async def test_an_output_is_the_same_the_first_time_and_when_it_is_read(output):
    checkpoints, log, given = InMemoryContentCheckpointStore(), [], []
    for number in range(2):
        saga = ContentAddressedSaga(f"s{number}", checkpoints)
        saga.add_stage(stage("a", log, lambda _: output))
        assert (await saga.execute({"x": 1})).is_ok()
        given.append(saga.outputs["a"])
    assert len(log) == 1
    assert given[0] == given[1] == json.loads(json.dumps(output, default=datetime.isoformat))


@pytest.mark.parametrize("output", [float("nan"), object(), {"x": {1, 2}}])
async def test_an_output_that_is_not_json_fails_its_stage(output):
    saga = ContentAddressedSaga("s", InMemoryContentCheckpointStore())
    saga.add_stage(stage("a", [], lambda _: output, max_retries=0))
    assert (await saga.execute({"x": 1})).unwrap_err().step_name == "a"


async def test_large_outputs_go_to_blobs_one_for_each_configuration():
    checkpoints, log = InMemoryContentCheckpointStore(), []
    blobs = await BlobStore.open(BlobConfig(scheme="memory"))
    saga = ContentAddressedSaga("s", checkpoints, blob_store=blobs, inline_threshold_bytes=10)
    stages = [
        stage("a/b", log, lambda _, lang=lang: lang * 20, config_affecting_output={"lang": lang})
        for lang in ("de", "en")
    ]
    for one in [*stages, *stages]:
        expected = one.config_affecting_output["lang"] * 20
        assert await saga.run_stage(one, {"x": 1}) == expected
    assert len(log) == 2
    paths = [blob.path async for blob in blobs.list()]
    assert len(set(paths)) == 2
    assert all(path.startswith("checkpoints/a%2Fb/_global/") for path in paths)
    (entry, _) = await checkpoints.list_by_stage("a/b")
    assert entry.output is None
    lonely = ContentAddressedSaga("s", checkpoints)
    with pytest.raises(RuntimeError, match="no blob_store"):
        await lonely.run_stage(stages[0], {"x": 1})


async def test_names_that_mean_two_things_are_refused():
    saga = book(InMemoryContentCheckpointStore(), [])
    with pytest.raises(SagaDefinitionError, match="names of stages"):
        await saga.execute({"parse": 1})
    with pytest.raises(SagaDefinitionError, match="own output"):
        saga.add_stage(stage("x", [], reads=("x",)))
    saga = ContentAddressedSaga("s", InMemoryContentCheckpointStore())
    saga.add_stage(stage("x", [], reads=("y",), max_retries=0))
    assert "neither inputs nor earlier" in (await saga.execute()).unwrap_err().message
