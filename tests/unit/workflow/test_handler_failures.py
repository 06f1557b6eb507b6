"""Whatever code of a user raises is a failure of that one call, never the end of its caller."""

import pytest
from tests.failures import FAILURES

from lexigram.workflow.bulk import BulkOperation, BulkOperationConfig
from lexigram.workflow.core import TransformPipe
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.pipeline import FunctionStep, ParallelStep, Pipeline
from lexigram.workflow.saga import AbstractSaga, SagaStep
from lexigram.workflow.state import State, StateMachine, Transition

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("way", FAILURES)]


async def test_a_graph_node_is_an_err(way):
    async def node(state):
        await FAILURES[way]()

    engine = WorkflowBuilder("g").add_node("a", node).set_entry("a").set_terminal("a").build()
    assert (await engine.execute("x")).is_err()


async def test_a_graph_node_beside_another_is_an_err(way):
    async def bad(state):
        await FAILURES[way]()

    builder = WorkflowBuilder("g").add_node("a", lambda s: None)
    builder.add_node("b", bad).add_node("c", lambda s: None).add_node("z", lambda s: None)
    for name in ("b", "c"):
        builder.add_edge("a", name).add_edge(name, "z")
    engine = builder.set_entry("a").set_terminal("z").build()
    assert (await engine.execute("x")).is_err()


@pytest.mark.parametrize("beside", [False, True])
async def test_a_pipeline_step_is_an_err(way, beside):
    async def work(context):
        await FAILURES[way]()

    step = FunctionStep("a", work)
    steps = [ParallelStep("p", [step, FunctionStep("b", lambda c: None)])] if beside else [step]
    assert (await Pipeline("p", steps).execute()).is_err()


@pytest.mark.parametrize("undoing", [False, True])
async def test_a_saga_step_and_a_compensation_are_an_err(way, undoing):
    calls = []

    async def first():
        calls.append("first")

    async def undo():
        calls.append("undo")
        if undoing:
            await FAILURES[way]()

    async def second():
        await FAILURES[way]()

    class Trip(AbstractSaga):
        def get_id(self):
            return "trip"

    saga = Trip()
    saga.add_step(SagaStep("first", first, undo, max_retries=0))
    saga.add_step(SagaStep("second", second, max_retries=0))
    assert (await saga.execute()).is_err()
    assert calls == ["first", "undo"]


async def test_an_item_of_a_bulk_operation_fails_alone(way):
    async def process(items):
        if items == [1]:
            await FAILURES[way]()
        return items

    settings = BulkOperationConfig(batch_size=1, retry_attempts=1, retry_delay=0)
    operation = BulkOperation(settings, process)
    batches = [batch async for batch in operation.execute([0, 1, 2])]
    assert sorted(batch.error_count for batch in batches) == [0, 0, 1]


async def test_the_source_of_a_bulk_operation_fails_it(way):
    async def source():
        yield 0
        await FAILURES[way]()

    async def same(items):
        return items

    with pytest.raises(Exception):  # noqa: B017 - any Exception, and no other kind
        async for _ in BulkOperation(BulkOperationConfig(), same).execute(source()):
            pass


async def test_a_hook_of_a_state_machine_raises_an_exception(way):
    async def hook(event, target):
        await FAILURES[way]()

    move = Transition("go", "b", on_transition=hook)
    machine = StateMachine([State("a", {"go": move}), State("b", {})], "a")
    with pytest.raises(Exception):  # noqa: B017 - any Exception, and no other kind
        await machine.transition("go")
    assert machine.current_state == "b"


async def test_a_pipe_gives_it_to_its_handler(way):
    async def bad(value):
        await FAILURES[way]()

    pipe = TransformPipe().pipe(bad).catch(lambda error, value: isinstance(error, Exception))
    assert await pipe.execute(1) is True
