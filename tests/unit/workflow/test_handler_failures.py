"""Whatever code of a user does is a failure of that one call, never the end of its caller."""

import anyio
import pytest
from tests.failures import (
    TIME_LIMIT,
    WAYS_TO_FAIL,
    WAYS_TO_FAIL_IN_A_TASK,
    WAYS_TO_RAISE,
    WAYS_TO_RAISE_NOW,
    block_the_loop,
    cancel_its_own_task,
    never_return,
)

from lexigram.concurrency import CallAbortedError
from lexigram.workflow.approval import ApprovalChain, ApprovalStep
from lexigram.workflow.bulk import (
    BulkOperation,
    BulkOperationConfig,
    BulkOperationState,
    BulkOperationTimeoutError,
    bulk_map,
    bulk_reduce,
)
from lexigram.workflow.checkpoint import InMemoryContentCheckpointStore
from lexigram.workflow.config import GraphConfig
from lexigram.workflow.core import TransformPipe
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.pipeline import FunctionStep, ParallelStep, Pipeline, PipelineStep
from lexigram.workflow.saga import (
    AbstractSaga,
    ContentAddressedSaga,
    ContentAddressedStage,
    InMemorySagaStore,
    SagaBatchProcessor,
    SagaStep,
)
from lexigram.workflow.state import State, StateMachine, Transition

pytestmark = pytest.mark.anyio

QUICK = {"retry_attempts": 1, "retry_delay": 0.0}


def graph(bad, **settings):
    """``a``, then ``b``, ``c`` and ``bad`` side by side, then ``z``."""
    config = GraphConfig(**settings)
    builder = WorkflowBuilder("g", config).add_node("a", lambda state: None)
    for name, node in (("b", lambda state: None), ("bad", bad), ("c", lambda state: None)):
        builder.add_node(name, node).add_edge("a", name)
    builder.add_node("z", lambda state: None)
    for name in ("b", "bad", "c"):
        builder.add_edge(name, "z")
    return builder.set_entry("a").set_terminal("z").build()


class Trip(AbstractSaga):
    def __init__(self, *steps, name="trip", **settings):
        super().__init__(**settings)
        self.name = name
        for step in steps:
            self.add_step(step)

    def get_id(self):
        return self.name


async def nothing(*_):
    """Does nothing, well."""


async def same(items):
    return items


# --- graphs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_graph_whose_node_fails_is_an_err_and_can_run_again(fail):
    bad = [True]

    async def node(state):
        if bad:
            await fail()

    builder = WorkflowBuilder("g", GraphConfig(node_timeout=TIME_LIMIT))
    engine = builder.add_node("a", node).set_entry("a").set_terminal("a").build()
    failure = (await engine.execute("x")).unwrap_err()
    assert failure.node == "a"
    bad.clear()
    assert (await engine.execute("x")).is_ok()


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_a_graph_with_a_failing_node_beside_others_is_an_err(fail):
    async def bad(state):
        await fail()

    failure = (await graph(bad, node_timeout=TIME_LIMIT).execute("x")).unwrap_err()
    assert failure.node == "bad"


@pytest.mark.parametrize("fail", WAYS_TO_RAISE_NOW[1:])  # a ValueError: the condition is not met
async def test_a_condition_that_fails_is_an_err_of_its_node(fail):
    builder = WorkflowBuilder("g").add_node("a", lambda state: None)
    builder.add_node("b", lambda state: None).add_edge("a", "b", condition=lambda state: fail())
    engine = builder.set_entry("a").set_terminal("b").build()
    assert (await engine.execute("x")).unwrap_err().node == "a"


@pytest.mark.parametrize("fail", WAYS_TO_RAISE_NOW[1:])  # a ValueError: the condition is not met
async def test_a_terminal_condition_that_fails_is_an_err_of_its_node(fail):
    builder = WorkflowBuilder("g").add_node("a", lambda state: None)
    builder.add_node("b", lambda state: None).add_edge("a", "b")
    builder.set_terminal("a", condition=lambda state: fail()).set_terminal("b")
    failure = (await builder.set_entry("a").build().execute("x")).unwrap_err()
    assert failure.node == "a"
    assert "its terminal condition" in str(failure)


@pytest.mark.parametrize("fail", WAYS_TO_RAISE_NOW)
async def test_a_reducer_that_fails_is_an_err_of_the_node_that_wrote(fail):
    builder = WorkflowBuilder("g").add_node("a", lambda state: {"k": 1})
    builder.add_node("b", lambda state: {"k": 2}).add_edge("a", "b")
    builder.reduce("k", lambda so_far, written: fail())
    engine = builder.set_entry("a").set_terminal("b").build()
    assert (await engine.execute("x")).unwrap_err().node == "b"


# --- pipelines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_pipeline_with_a_failing_step_is_an_err(fail, beside):
    async def work(context):
        await fail()

    step = FunctionStep("a", work, timeout=TIME_LIMIT)
    steps = (
        [ParallelStep("p", [step, FunctionStep("b", lambda context: None)])] if beside else [step]
    )
    assert (await Pipeline("p", steps).execute()).is_err()


@pytest.mark.parametrize("concurrent", [False, True])
async def test_a_pipeline_step_that_cancels_its_own_task_is_an_err(concurrent):
    async def work(context):
        await cancel_its_own_task()

    step = FunctionStep("a", work)
    steps = (
        [step]
        if concurrent
        else [ParallelStep("p", [step, FunctionStep("b", lambda context: None)])]
    )
    pipeline = Pipeline("p", steps, concurrent=concurrent)
    assert (await pipeline.execute()).is_err()


@pytest.mark.parametrize("method", ["should_skip", "on_error", "cleanup"])
@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_step_whose_other_methods_fail_is_an_err(fail, method):
    class Bad(PipelineStep):
        async def execute(self, context):
            if method == "on_error":
                raise ValueError("first")

    async def bad(self, *_):
        await fail()

    setattr(Bad, method, bad)
    assert (await Pipeline("p", [Bad("a", timeout=TIME_LIMIT)]).execute()).is_err()


async def test_a_cleanup_that_never_returns_does_not_hold_up_a_cancellation(caplog):
    begun = anyio.Event()

    class Bad(PipelineStep):
        async def execute(self, context):
            begun.set()
            await anyio.sleep_forever()

        async def cleanup(self, context):
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Pipeline("p", [Bad("a", timeout=1.0)]).execute)
        await begun.wait()
        tasks.cancel_scope.cancel()
    assert "cleaning up failed" in caplog.text


# --- sagas ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("undoing", [False, True])
@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_saga_step_that_fails_is_tried_again_then_undone(fail, undoing):
    calls = []

    async def first():
        calls.append("first")

    async def undo():
        calls.append("undo")
        if undoing:
            await fail()

    async def second():
        calls.append("second")
        await fail()

    terms = {"max_retries": 1, "retry_delay": 0.0, "timeout": TIME_LIMIT}
    saga = Trip(SagaStep("first", first, undo, **terms), SagaStep("second", second, **terms))
    failure = (await saga.execute()).unwrap_err()
    assert calls == ["first", "second", "second", "undo", *["undo"] * undoing]
    assert bool(failure.compensation_errors) is undoing


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_stage_of_a_content_addressed_saga_that_fails_is_tried_again_then_an_err(fail):
    calls = []

    async def first(inputs):
        calls.append("first")
        return 1

    async def second(inputs):
        calls.append("second")
        await fail()

    saga = ContentAddressedSaga("pages", InMemoryContentCheckpointStore())
    saga.add_stage(ContentAddressedStage("first", first, "1"))
    terms = {"max_retries": 1, "retry_delay": 0.0, "timeout": TIME_LIMIT}
    saga.add_stage(ContentAddressedStage("second", second, "1", **terms))
    assert (await saga.execute({"text": "to be"})).is_err()
    assert calls == ["first", "second", "second"]


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_hook_of_a_saga_that_fails_does_not_end_it(fail, caplog):
    async def hook(*_):
        await fail()

    saga = Trip(
        SagaStep("a", nothing, nothing),
        hook_timeout=TIME_LIMIT,
        on_step_executed=hook,
        on_compensation_triggered=hook,
    )
    assert (await saga.execute()).is_ok()
    assert (await saga.compensate()).is_ok()
    assert caplog.text.count("a hook failed") == 2


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_reaction_of_a_saga_that_fails_is_an_error_of_who_brings_the_event(fail):
    bad = [True]

    async def react(event):
        if bad:
            await fail()
        return ["command"]

    saga = Trip()
    saga.on(str, react)
    with pytest.raises(Exception):  # noqa: B017 - any Exception, and no other kind
        await saga.handle("event")
    bad.clear()
    assert await saga.handle("event") == ["command"]


@pytest.mark.parametrize("method", ["snapshot", "restore"])
@pytest.mark.parametrize("fail", WAYS_TO_RAISE_NOW)
async def test_a_saga_whose_snapshot_or_restore_fails_raises_an_exception_and_can_go_on(
    fail, method
):
    store, bad = InMemorySagaStore(), [True]

    class Bad(Trip):
        def snapshot(self):
            if method == "snapshot" and bad:
                fail()
            return {}

        def restore(self, snapshot):
            if method == "restore" and bad:
                fail()

    async def stop():
        raise KeyboardInterrupt

    if method == "restore":
        with pytest.raises(KeyboardInterrupt):
            await Bad(SagaStep("a", stop), store=store).execute()
    with pytest.raises(Exception):  # noqa: B017 - any Exception, and no other kind
        await Bad(SagaStep("a", nothing), store=store).execute()
    bad.clear()
    assert (await Bad(SagaStep("a", nothing), store=store).execute()).is_ok()


@pytest.mark.parametrize("fail", [*WAYS_TO_RAISE, cancel_its_own_task])
async def test_a_saga_that_fails_in_a_batch_leaves_the_others_their_results(fail):
    store = InMemorySagaStore()
    done = []

    async def good():
        done.append(1)

    sagas = [
        Trip(SagaStep("one", fail, max_retries=0), name="bad"),
        *(Trip(SagaStep("one", good), name=f"good{number}") for number in range(3)),
    ]
    batch = SagaBatchProcessor(store, batch_size=1)
    if fail is cancel_its_own_task:
        with pytest.raises(CallAbortedError):
            await batch.run(sagas, "b")
        return
    report = await batch.run(sagas, "b")
    assert [outcome.result.is_ok() for outcome in report.outcomes] == [False, True, True, True]
    assert done == [1, 1, 1]


# --- bulk -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_an_item_of_a_bulk_operation_is_tried_again_then_fails_alone(fail):
    calls = []

    async def process(items):
        calls.append(items)
        if items == [1]:
            await fail()
        return items

    operation = BulkOperation(BulkOperationConfig(batch_size=1, **QUICK), process)
    batches = [batch async for batch in operation.execute([0, 1, 2])]
    assert sorted(batch.error_count for batch in batches) == [0, 0, 1]
    assert calls.count([1]) == 2


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_hooks_of_a_bulk_operation_that_fail_are_logged_and_it_goes_on(fail, caplog):
    async def hook(*_):
        await fail()

    async def process(items):
        if items == [1]:
            raise ValueError("no")
        return items

    settings = BulkOperationConfig(batch_size=1, retry_attempts=0, hook_timeout=TIME_LIMIT)
    operation = BulkOperation(settings, process, on_error=hook, on_complete=hook)
    assert len([batch async for batch in operation.execute([0, 1])]) == 2
    assert caplog.text.count("a hook of a bulk operation failed") == 2


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_a_source_of_a_bulk_operation_that_fails_fails_the_operation(fail):
    async def source():
        yield 0
        await fail()

    operation = BulkOperation(BulkOperationConfig(timeout=1.0), same)
    with pytest.raises(Exception):  # noqa: B017 - any Exception, and no other kind
        async for _ in operation.execute(source()):
            pass
    assert operation.state is BulkOperationState.FAILED


@pytest.mark.parametrize("fail", [never_return, cancel_its_own_task])
async def test_a_processor_that_hangs_or_cancels_its_task_fails_the_operation(fail):
    async def process(items):
        await fail()

    operation = BulkOperation(BulkOperationConfig(timeout=1.0), process)
    with pytest.raises((BulkOperationTimeoutError, CallAbortedError)):
        async for _ in operation.execute([1]):
            pass
    assert operation.state is BulkOperationState.FAILED


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_map_and_reduce_raise_an_exception_for_an_item_that_fails(fail):
    async def bad(*_):
        await fail()

    config = BulkOperationConfig(**QUICK)
    with pytest.raises(Exception):  # noqa: B017 - any Exception, and no other kind
        await bulk_map(bad, [1], config)
    with pytest.raises(Exception):  # noqa: B017 - as above
        await bulk_reduce([1], bad, 0, config)


# --- state machines and pipes ---------------------------------------------------------------------


@pytest.mark.parametrize("part", ["guard", "on_transition"])
@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_code_of_a_state_machine_that_fails_raises_an_exception_and_it_goes_on(fail, part):
    async def bad(*_):
        await fail()

    move = Transition("go", "b", **{part: bad})
    states = [State("a", {"go": move, "jump": Transition("jump", "b")}), State("b", {})]
    machine = StateMachine(states, "a", timeout=TIME_LIMIT)
    with pytest.raises(Exception):  # noqa: B017 - any Exception, and no other kind
        await machine.transition("go")
    assert machine.current_state == ("a" if part == "guard" else "b")
    if part == "guard":
        assert await machine.transition("jump") == "b"


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_pipe_gives_a_failure_to_its_handler_or_raises_it(fail):
    async def bad(value):
        await fail()

    pipe = TransformPipe(timeout=TIME_LIMIT).pipe(bad)
    caught = pipe.catch(lambda error, value: isinstance(error, Exception))
    assert await caught.execute(1) is True
    with pytest.raises(Exception):  # noqa: B017 - any Exception, and no other kind
        await pipe.execute(1)


@pytest.mark.parametrize("fail", [*WAYS_TO_RAISE, cancel_its_own_task])
async def test_an_approver_that_fails_is_an_error_of_who_asks(fail):
    async def ask(*_):
        await fail()

    chain = ApprovalChain().add_step(ApprovalStep("a", approver=ask))
    with pytest.raises(Exception, match="failed on purpose|the handler raised|unhandled errors"):
        await chain.execute()


async def test_code_that_blocks_the_loop_past_a_lease_is_done_once_by_its_owner():
    lease, calls = 0.05, []

    async def block(*_):
        await anyio.lowlevel.checkpoint()
        block_the_loop(lease)
        calls.append(1)

    saga = Trip(
        SagaStep("a", block),
        SagaStep("b", nothing),
        store=InMemorySagaStore(),
        lease=lease,
    )
    assert (await saga.execute()).is_ok()
    assert calls == [1]
