"""The module: what is bound, what is told, what runs by itself."""

from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest

from lexigram import clock
from lexigram.app import Application
from lexigram.config import LexigramConfig
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.workflow import (
    ApprovalProtocol,
    BulkCheckpointStoreProtocol,
    BulkProcessorProtocol,
    CheckpointStoreProtocol,
    ContentCheckpointStoreProtocol,
    ExecutionProtocol,
    PipelineContextProtocol,
    PipelineProtocol,
    PipelineStepProtocol,
    SagaProtocol,
    SagaStoreProtocol,
    StateMachineProtocol,
    StatePersistenceProtocol,
    WorkflowGraphProtocol,
    WorkflowNodeProtocol,
)
from lexigram.di import Module, Provider, module
from lexigram.di.errors import ContainerValidationError, ProviderError
from lexigram.hooks import HookRegistry
from lexigram.result import Err, Ok
from lexigram.sql import SqlConfig, SqlModule
from lexigram.testing.fakes import FakeClock
from lexigram.workflow import (
    BulkOperationConfig,
    GraphConfig,
    Pipeline,
    PipelineContext,
    WorkflowBuilder,
    WorkflowConfig,
    WorkflowEngine,
    WorkflowModule,
    Workflows,
    saga_step,
    workflow,
)
from lexigram.workflow.approval import ApprovalChain, ApprovalNode, ApprovalStep
from lexigram.workflow.bulk import BulkOperation
from lexigram.workflow.checkpoint import InMemoryCheckpointStore, SqlCheckpointStore
from lexigram.workflow.checkpoint._store_none import NoContentCheckpointStore
from lexigram.workflow.config import ContentCheckpointConfig
from lexigram.workflow.errors import HumanInputRequiredError, WorkflowNotFoundError
from lexigram.workflow.events import (
    WorkflowCompletedEvent,
    WorkflowFailedEvent,
    WorkflowStartedEvent,
)
from lexigram.workflow.graph import AbstractWorkflowNode
from lexigram.workflow.hooks import (
    WorkflowCompletedHook,
    WorkflowStartedHook,
    WorkflowStateTransitionedHook,
)
from lexigram.workflow.pipeline import (
    ApprovalGate,
    ConditionalStep,
    FunctionStep,
    GraphStep,
    ParallelStep,
)
from lexigram.workflow.saga import AbstractSaga, InMemorySagaStore
from lexigram.workflow.state import DatabaseStatePersistence, State, StateMachine

pytestmark = pytest.mark.anyio


class Node(AbstractWorkflowNode):
    async def execute(self, state):
        return {}


@workflow("order")
class OrderSaga(AbstractSaga):
    def __init__(self, order_id: str, store: SagaStoreProtocol) -> None:
        super().__init__(store)
        self.order_id = order_id

    def get_id(self):
        return self.order_id

    @saga_step(compensation="refund")
    async def charge(self):
        return Ok("charged")

    async def refund(self):
        pass


def graph(name="graph", node=None):
    return (
        WorkflowBuilder(name)
        .add_node("only", node or (lambda s: s["input"]))
        .set_entry("only")
        .set_terminal("only")
    )


STEP = FunctionStep("s", lambda c: None)
# The contracts table of the specification.
IMPLEMENTERS = [
    (PipelineProtocol, lambda: Pipeline("p")),
    (PipelineStepProtocol, lambda: STEP),
    (PipelineStepProtocol, lambda: ConditionalStep("c", lambda c: True, STEP)),
    (PipelineStepProtocol, lambda: ParallelStep("c", [STEP])),
    (PipelineContextProtocol, PipelineContext),
    (SagaProtocol, lambda: OrderSaga("o", InMemorySagaStore())),
    (SagaStoreProtocol, InMemorySagaStore),
    (StateMachineProtocol, lambda: StateMachine({"a": State("a")}, "a")),
    (StatePersistenceProtocol, lambda: DatabaseStatePersistence(None)),
    (WorkflowGraphProtocol, lambda: WorkflowBuilder("g")),
    (WorkflowNodeProtocol, lambda: Node("n")),
    (ExecutionProtocol, lambda: graph().build()),
    (BulkProcessorProtocol, BulkOperation),
]


@pytest.mark.parametrize(("protocol", "make"), IMPLEMENTERS)
def test_each_implementer_of_the_contracts_table_satisfies_its_protocol(protocol, make):
    assert isinstance(make(), protocol)


async def test_everything_is_resolvable():
    async with Application("x", modules=[WorkflowModule.stub()]) as app:
        for service in (
            *(PipelineProtocol, PipelineContextProtocol, WorkflowGraphProtocol),
            *(ExecutionProtocol, CheckpointStoreProtocol, SagaStoreProtocol),
            *(StatePersistenceProtocol, ContentCheckpointStoreProtocol),
            BulkCheckpointStoreProtocol,
        ):
            assert isinstance(await app.container.resolve(service), service), service
        assert await app.container.resolve(GraphConfig) == GraphConfig()
        assert await app.container.resolve(BulkOperationConfig) == WorkflowConfig()
        assert (await app.health_check()).status is HealthStatus.HEALTHY


async def test_the_bound_pipeline_is_empty_called_default_and_accepts_steps():
    async with Application("x", modules=[WorkflowModule.stub()]) as app:
        pipeline = await app.container.resolve(PipelineProtocol)
        assert isinstance(pipeline, Pipeline)
        assert (pipeline.name, pipeline.steps) == ("default", ())

        def work(context, workflows: Workflows):
            return workflows.names

        pipeline.add_step(FunctionStep("one", work))
        assert (await pipeline.execute()).unwrap().get_result("one") == ()


async def test_settings_of_the_section_and_its_variables_are_obeyed(tmp_path, monkeypatch):
    file = tmp_path / "application.yaml"
    file.write_text("workflow:\n  pipeline_timeout: 0.01\n  graph:\n    max_iterations: 7\n")
    monkeypatch.setenv("LEX_WORKFLOW__CONTENT_CHECKPOINTS__ENABLED", "false")

    async def forever(context):
        await anyio.sleep_forever()

    config = await anyio.to_thread.run_sync(LexigramConfig.from_yaml, file)
    async with Application("x", config, modules=[WorkflowModule]) as app:
        assert (await app.container.resolve(GraphConfig)).max_iterations == 7
        pipeline = await app.container.resolve(Pipeline)
        pipeline.add_step(FunctionStep("slow", forever))
        assert "0.01 s" in str((await pipeline.execute()).unwrap_err())
        content = await app.container.resolve(ContentCheckpointStoreProtocol)
        assert isinstance(content, NoContentCheckpointStore)


def test_a_configuration_of_the_wrong_type_is_refused():
    with pytest.raises(TypeError, match="WorkflowConfig"):
        WorkflowModule.configure({"batch_size": 3})
    with pytest.raises(TypeError, match="ContentCheckpointConfig"):
        WorkflowModule.configure(content_checkpoint_config=GraphConfig())


async def test_stores_are_in_the_database_of_the_application_unless_given(tmp_path):
    sql = SqlModule.configure(SqlConfig(url=f"sqlite:///{tmp_path}/a.db"))
    async with Application("x", modules=[sql, WorkflowModule.stub()]) as app:
        store = await app.container.resolve(CheckpointStoreProtocol)
        assert isinstance(store, SqlCheckpointStore)
        persistence = await app.container.resolve(StatePersistenceProtocol)
        assert isinstance(persistence, DatabaseStatePersistence)
        assert await persistence.get_current_version("m") == 0
    mine, sagas = InMemoryCheckpointStore(), InMemorySagaStore()
    given = WorkflowModule.configure(
        WorkflowConfig(),
        sagas,
        content_checkpoint_config=ContentCheckpointConfig(),
        state_machine=StateMachine({"a": State("a")}, "a"),
        checkpoint_store=mine,
    )
    async with Application("x", modules=[given]) as app:
        assert await app.container.resolve(CheckpointStoreProtocol) is mine
        assert await app.container.resolve(SagaStoreProtocol) is sagas
        assert (await app.container.resolve(StateMachineProtocol)).current_state == "a"


async def test_marked_workflows_are_listed_and_run():
    @workflow("greet", timeout=30, retries=2)
    async def greet(context, workflows: Workflows):
        """Say hello."""
        return f"hello {context.metadata['input']} from {len(workflows.names)}"

    @workflow()
    def made(hooks: HookRegistry) -> Pipeline:
        return Pipeline("made by a function", [FunctionStep("a", lambda c: hooks.name)])

    @workflow()
    def drawn() -> WorkflowBuilder:
        def node(state, hooks: HookRegistry):
            return hooks.name

        return graph("drawn", node)

    items = [greet, made, drawn, graph("plain").build(), OrderSaga]
    async with Application("x", modules=[WorkflowModule.stub(workflows=items)]) as app:
        workflows = await app.container.resolve(Workflows)
        listed = {item.name: item for item in workflows.definitions()}
        assert list(listed) == ["greet", "made by a function", "drawn", "plain", "order"]
        assert [item.kind for item in listed.values()] == [
            *("pipeline", "pipeline", "graph", "graph", "saga")
        ]
        assert (listed["greet"].description, listed["greet"].retries) == ("Say hello.", 2)
        assert listed["order"].steps == ["charge"]
        assert (await workflows.run("greet", "ada")).unwrap().output == "hello ada from 5"
        assert (await workflows.run("made by a function")).unwrap().output == "default"
        assert (await workflows.run("drawn", {"x": 1})).unwrap().output == "default"
        assert (await workflows.run("plain", "in")).unwrap().output == "in"
        assert (await workflows.run("order", {"order_id": "o-1"})).is_ok()
        assert (await workflows.status("o-1")).steps == {"charge": "done"}
        assert (await workflows.resume("o-1", name="order", input={"order_id": "o-1"})).is_ok()
        runs = await workflows.history(limit=10)
        assert {run.workflow for run in runs} == set(listed) - {"order"}
        assert all(run.status == "completed" for run in runs)
        with pytest.raises(WorkflowNotFoundError, match="did you mean 'greet'"):
            await workflows.run("great")


async def test_a_module_is_looked_through(tmp_path, monkeypatch):
    package = tmp_path / "flows_of_a_test"
    package.mkdir()
    package.joinpath("__init__.py").write_text("")
    package.joinpath("one.py").write_text(
        "from lexigram.workflow import Pipeline, workflow\n"
        "from lexigram.workflow.pipeline import FunctionStep\n"
        "direct = Pipeline('direct', [FunctionStep('a', lambda c: 1)])\n"
        "@workflow('marked')\n"
        "def marked(context):\n    return 2\n"
        "def plain(context):\n    return 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    stub = WorkflowModule.stub(workflows=["flows_of_a_test"])
    async with Application("x", modules=[stub]) as app:
        workflows = await app.container.resolve(Workflows)
        assert workflows.names == ("direct", "marked")
        assert (await workflows.run("marked")).unwrap().output == 2


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([graph("same").build(), graph("same").build()], "two workflows are called 'same'"),
        ([len], "len is no workflow"),
    ],
)
async def test_a_bad_list_of_workflows_fails_the_start(items, text):
    app = Application("x", modules=[WorkflowModule.stub(workflows=items)])
    with pytest.raises(ProviderError, match=text):
        await app.start()
    await app.stop()


async def test_a_workflow_whose_service_is_missing_fails_the_start():
    class Missing:
        pass

    @workflow("w")
    def needs(context, missing: Missing):
        return None

    needs.__annotations__["missing"] = Missing
    app = Application("x", modules=[WorkflowModule.stub(workflows=[needs])])
    with pytest.raises(ContainerValidationError, match="nothing provides Missing"):
        await app.start()
    await app.stop()


class Stock:
    count = 3


async def test_workflows_of_a_feature_see_what_its_module_sees():
    class StockProvider(Provider):
        async def register(self, container):
            container.singleton(Stock)

    @workflow("count")
    def count(context, stock: Stock):
        return stock.count

    @module(imports=[WorkflowModule.scope(count)], providers=[StockProvider])
    class Feature(Module):
        pass

    async with Application("x", modules=[WorkflowModule.stub(), Feature]) as app:
        workflows = await app.container.resolve(Workflows)
        assert (await workflows.run("count")).unwrap().output == 3


@dataclass(frozen=True, kw_only=True)
class OrderPlaced(DomainEvent):
    order_id: str


async def test_an_event_starts_a_run_and_the_publisher_does_not_wait():
    gate, ended = anyio.Event(), anyio.Event()
    seen = []

    @workflow("on order", on=OrderPlaced)
    async def react(context):
        await gate.wait()
        seen.append(context.metadata["event"]["order_id"])
        ended.set()

    async with Application("x", modules=[WorkflowModule.stub(workflows=[react])]) as app:
        bus = await app.container.resolve(EventBusProtocol)
        assert (await bus.publish(OrderPlaced(order_id="7"))).is_ok()
        assert seen == []
        gate.set()
        await ended.wait()
    assert seen == ["7"]


async def test_stopping_waits_for_runs_that_events_started():
    seen = []

    @workflow("on order", on=OrderPlaced)
    async def react(context):
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        seen.append("ended")

    async with Application("x", modules=[WorkflowModule.stub(workflows=[react])]) as app:
        await (await app.container.resolve(EventBusProtocol)).publish(OrderPlaced(order_id="7"))
    assert seen == ["ended"]


async def test_events_and_hooks_are_told_for_every_kind_of_workflow():
    def broken(context):
        raise ValueError("no")

    ok = Pipeline("ok", [FunctionStep("a", lambda c: 1)])
    bad = Pipeline("bad", [FunctionStep("a", broken)])
    items = [ok, bad, graph("g").build(), OrderSaga]
    async with Application("x", modules=[WorkflowModule.stub(workflows=items)]) as app:
        told, hooked = [], []
        bus = await app.container.resolve(EventBusProtocol)
        for kind in (WorkflowStartedEvent, WorkflowCompletedEvent, WorkflowFailedEvent):
            bus.subscribe(kind, lambda e: told.append((type(e).__name__, e.workflow_name)))
        for kind in (WorkflowStartedHook, WorkflowCompletedHook, WorkflowStateTransitionedHook):
            app.hooks.on(kind, hooked.append)
        workflows = await app.container.resolve(Workflows)
        await workflows.run("ok")
        await workflows.run("bad")
        await workflows.run("g", "x")
        await workflows.run("order", {"order_id": "o"})
    names = {"Started": "WorkflowStartedEvent", "Completed": "WorkflowCompletedEvent"}
    for name in ("ok", "g", "order"):
        assert (names["Started"], name) in told
        assert (names["Completed"], name) in told
    assert ("WorkflowFailedEvent", "bad") in told
    kinds = {hook.workflow_type for hook in hooked if isinstance(hook, WorkflowStartedHook)}
    assert kinds == {"pipeline", "graph", "saga"}
    assert {hook.succeeded for hook in hooked if isinstance(hook, WorkflowCompletedHook)} == {
        True,
        False,
    }
    moves = [h.to_state for h in hooked if isinstance(h, WorkflowStateTransitionedHook)]
    assert {"completed", "failed"} <= set(moves)


class Boss:
    """Implements ApprovalProtocol: says yes to small sums."""

    def __init__(self):
        self.asked = []

    async def request_approval(self, workflow_id, step_id, context):
        self.asked.append((step_id, context["approver"]))
        return context["sum"] < 100

    async def cancel_approval(self, approval_id):
        pass


async def test_a_bound_approval_service_decides_approval_steps_of_graphs_and_pipelines():
    boss = Boss()

    class ApprovalProvider(Provider):
        async def register(self, container):
            container.singleton(ApprovalProtocol, boss)

    def chain():
        return ApprovalChain().add_step(ApprovalStep("sum", "the boss"))

    node = graph("graph", ApprovalNode("only", chain())).build()
    pipeline = Pipeline("pipeline", [ApprovalGate("gate", chain())])
    stub = WorkflowModule.stub(workflows=[node, pipeline])
    async with Application("x", modules=[stub], providers=[ApprovalProvider()]) as app:
        workflows = await app.container.resolve(Workflows)
        small, large = {"sum": 10}, {"sum": 1000}
        assert (await workflows.run("graph", small)).unwrap().final_state["approved"] is True
        assert (await workflows.run("graph", large)).unwrap().final_state["approved"] is False
        assert (await workflows.run("pipeline", small)).unwrap().output == {"sum": "approved"}
        refused = await workflows.run("pipeline", large)
        assert isinstance(refused, Err)
        assert "not approved" in str(refused.error)
    assert boss.asked == [("sum", "the boss")] * 4


@pytest.mark.parametrize("kind", ["graph", "pipeline"])
async def test_pauses_that_are_over_are_noticed_by_the_application(kind):
    chain = ApprovalChain(timeout=60).add_step(ApprovalStep("legal", "ann"))
    engine = graph("asks", ApprovalNode("only", chain)).build()
    if kind == "pipeline":
        engine = Pipeline("asks", [GraphStep("inside", engine)])
    config = WorkflowConfig(pause_check_interval=0.01)
    stub = WorkflowModule.stub(config, workflows=[engine])
    async with Application("x", modules=[stub]) as app:
        workflows = await app.container.resolve(Workflows)
        with clock.use(FakeClock()) as time:
            with pytest.raises(HumanInputRequiredError) as pause:
                await workflows.run("asks", "x")
            run_id = pause.value.run_id
            assert (await workflows.status(run_id)).status == "paused"
            time.advance(61)
            with anyio.fail_after(60):
                while (await workflows.status(run_id)).status != "completed":  # noqa: ASYNC110 - a store tells nobody
                    await anyio.sleep(0.01)


async def test_a_run_is_answered_and_cancelled_through_the_workflows():
    engine = (
        WorkflowBuilder("ask")
        .add_node("person", human_prompt="Well?", output_key="said")
        .add_node("end", lambda s: s["said"])
        .add_edge("person", "end")
        .set_entry("person")
        .set_terminal("end")
        .build()
    )
    async with Application("x", modules=[WorkflowModule.stub(workflows=[engine])]) as app:
        workflows = await app.container.resolve(ExecutionProtocol)
        runs = []
        for _ in range(2):
            with pytest.raises(HumanInputRequiredError) as pause:
                await workflows.execute("ask", {"a": 1})
            runs.append(pause.value.run_id)
        assert (await workflows.resume(runs[0], "yes")).unwrap().output == "yes"
        assert await workflows.cancel(runs[1])
        assert not await workflows.cancel(runs[1])
        assert (await workflows.status(runs[1])).status == "cancelled"
        with pytest.raises(WorkflowNotFoundError):
            await workflows.status("nobody")


async def test_the_status_of_a_paused_pipeline_shows_which_step_waits():
    def ask(context):
        raise HumanInputRequiredError("Well?")

    inner = ParallelStep("both", [FunctionStep("ask", ask), FunctionStep("b", lambda c: 1)])
    steps = [FunctionStep("first", lambda c: 1), inner, FunctionStep("last", lambda c: 2)]
    stub = WorkflowModule.stub(workflows=[Pipeline("asks", steps)])
    async with Application("x", modules=[stub]) as app:
        workflows = await app.container.resolve(Workflows)
        with pytest.raises(HumanInputRequiredError) as pause:
            await workflows.run("asks")
        status = await workflows.status(pause.value.run_id)
        assert status.steps == {"first": "done", "both": "paused", "last": "waiting"}
        assert "class n0 completed" in await workflows.diagram("asks", run_id=pause.value.run_id)


async def test_the_status_of_a_failed_pipeline_shows_which_step_failed():
    def fail(context):
        raise ValueError("no")

    steps = [FunctionStep(name, fail if name == "b" else len) for name in "abc"]
    steps[0] = FunctionStep("a", lambda context: 1)
    stub = WorkflowModule.stub(workflows=[Pipeline("fails", steps)])
    async with Application("x", modules=[stub]) as app:
        workflows = await app.container.resolve(Workflows)
        assert (await workflows.run("fails", run_id="r")).is_err()
        status = await workflows.status("r")
        assert (status.status, "no" in status.error) == ("failed", True)
        assert status.steps == {"a": "done", "b": "failed", "c": "waiting"}


@pytest.mark.parametrize("way", ["Err", "raise"])
async def test_the_status_of_a_failed_saga_shows_what_failed_and_what_was_undone(way):
    @workflow("trip")
    class Trip(AbstractSaga):
        def __init__(self, store: SagaStoreProtocol) -> None:
            super().__init__(store)

        def get_id(self):
            return "trip-1"

        @saga_step(compensation="give_back")
        async def book(self):
            return Ok(None)

        @saga_step(compensation="refund", max_retries=0)
        async def pay(self):
            return Ok(None)

        @saga_step(max_retries=0)
        async def fly(self):
            if way == "Err":
                return Err("strike")
            raise ValueError("strike")

        async def give_back(self):
            return Ok(None)

        async def refund(self):
            return Err("closed")

    async with Application("x", modules=[WorkflowModule.stub(workflows=[Trip])]) as app:
        workflows = await app.container.resolve(Workflows)
        assert (await workflows.run("trip")).is_err()
        status = await workflows.status("trip-1")
    assert (status.status, "strike" in status.error) == ("failed", True)
    assert status.steps == {"book": "undone", "pay": "not undone", "fly": "failed"}


async def test_an_unhealthy_store_shows_in_the_health():
    class Away(InMemoryCheckpointStore):
        async def runs(self, **kwargs):
            raise OSError("the database is away")

    away = WorkflowModule.configure(WorkflowConfig(), checkpoint_store=Away())
    async with Application("x", modules=[away]) as app:
        health = await app.health_check()
        assert health.status is HealthStatus.UNHEALTHY
        assert "away" in str(health)


def test_the_engine_of_the_specification_is_where_users_import_it():
    from lexigram.workflow.graph.engine import WorkflowEngine as Known

    assert Known is WorkflowEngine
