"""Runs that are kept: recovered, looked back on, forked, pruned."""

import itertools
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from uuid import UUID

import anyio
import pytest
from attrs import frozen
from tests.crashes import Crash

from lexigram import clock
from lexigram.contracts.workflow import GraphRunStatus
from lexigram.serialization import dumps, register
from lexigram.testing import wait_until
from lexigram.testing.fakes import FakeClock
from lexigram.workflow.checkpoint import InMemoryCheckpointStore
from lexigram.workflow.config import GraphConfig
from lexigram.workflow.errors import (
    CheckpointConflictError,
    GraphExecutionError,
    StateNotStorableError,
    WorkflowNotFoundError,
    WorkflowStateError,
    WorkflowVersionMismatchError,
)
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.runs._codec import decode, encode

pytestmark = pytest.mark.anyio


@register
@frozen
class Money:
    amount: Decimal


@frozen
class Stranger:
    n: int


class Colour(Enum):
    RED = (1, 2)


class Mood(StrEnum):
    GOOD = "good"


def chain(store, log, names="abcde", *, broken=None, error=Crash, config=None, version=1):
    """Nodes in a row that add their name; one of them may be broken."""
    builder = WorkflowBuilder("chain", config, version).reduce("names", "append")
    for name in names:

        def node(state, name=name):
            if name == broken:
                raise error(name)
            log.append(name)
            return {"names": [name], name: len(state.get("names", []))}

        builder.add_node(name, node)
    for source, target in itertools.pairwise(names):
        builder.add_edge(source, target)
    return builder.set_entry(names[0]).set_terminal(names[-1]).build(checkpoints=store)


@pytest.mark.parametrize("broken", "abcde")
async def test_a_crash_at_any_node_repeats_no_finished_node(broken):
    store, log = InMemoryCheckpointStore(), []
    with pytest.raises(Crash):
        await chain(store, log, broken=broken).execute("x", run_id="r")
    undisturbed = (await chain(None, []).execute("x", run_id="r")).unwrap()
    result = (await chain(store, log).recover("r")).unwrap()
    assert log == list("abcde")
    final = {k: v for k, v in result.final_state.items() if k != "_history"}
    assert final == {k: v for k, v in undisturbed.final_state.items() if k != "_history"}
    assert result.iterations == 5


@pytest.mark.parametrize("beside", [False, True])
async def test_a_crash_behind_a_fan_out_without_pieces_keeps_what_began_empty(beside):
    def build(store, *, broken):
        def join(state):
            if broken:
                raise Crash("join")
            return {"output": [state["found"], state["count"]]}

        builder = WorkflowBuilder("w").reduce("found", "append").reduce("count", "merge")
        builder.add_node("first", lambda s: {})
        builder.add_node("a", lambda s: {})
        builder.add_node("b", lambda s: {"found": [1], "count": {"b": 1}})
        builder.add_node("join", join).add_edge("first", "a")
        builder.add_edge("a", "b", each=lambda s: []).add_edge("b", "join")
        if beside:
            builder.add_node("e", lambda s: {}).add_edge("first", "e").add_edge("e", "join")
        return builder.set_entry("first").set_terminal("join").build(checkpoints=store)

    store = InMemoryCheckpointStore()
    with pytest.raises(Crash):
        await build(store, broken=True).execute("x", run_id="r")
    result = (await build(store, broken=False).recover("r")).unwrap()
    assert result.output == [[], {}]


async def test_a_failed_run_is_kept_and_recovered_from_where_it_failed():
    store, log = InMemoryCheckpointStore(), []
    error = (
        await chain(store, log, broken="c", error=RuntimeError).execute("x", run_id="r")
    ).unwrap_err()
    assert error.node == "c"
    assert error.run_id == "r"
    assert error.state["names"] == ["a", "b"]
    (run,) = await store.runs(status=GraphRunStatus.FAILED)
    assert "Node 'c' failed" in run.error
    assert (await chain(store, log).recover("r")).is_ok()
    assert log == list("abcde")
    (run,) = await store.runs()
    assert (run.status, run.error) == (GraphRunStatus.COMPLETED, None)


async def test_a_completed_run_gives_its_result_again():
    store, log = InMemoryCheckpointStore(), []
    first = (await chain(store, log).execute("x", run_id="r")).unwrap()
    again = (await chain(store, log).recover("r")).unwrap()
    assert again.final_state["names"] == first.final_state["names"]
    assert again.terminated_at == "e"
    assert log == list("abcde")


async def test_recover_refuses_unknown_runs_and_other_versions():
    store = InMemoryCheckpointStore()
    engine = chain(store, [])
    with pytest.raises(WorkflowNotFoundError):
        await engine.recover("r")
    (await engine.execute("x", run_id="r")).unwrap()
    with pytest.raises(WorkflowVersionMismatchError):
        await chain(store, [], version=2).recover("r")
    other = WorkflowBuilder("other").add_node("a", lambda s: None).set_entry("a").set_terminal("a")
    with pytest.raises(WorkflowStateError, match="belongs to graph 'chain'"):
        await other.build(checkpoints=store).recover("r")


async def test_a_run_id_that_is_taken_is_an_err_and_leaves_the_old_run_alone():
    store, log = InMemoryCheckpointStore(), []
    engine = chain(store, log)
    (await engine.execute("x", run_id="r")).unwrap()
    error = (await engine.execute("y", run_id="r")).unwrap_err()
    assert isinstance(error.cause, CheckpointConflictError)
    assert log == list("abcde")
    (run,) = await store.runs()
    assert run.status is GraphRunStatus.COMPLETED


async def test_who_loses_a_run_to_another_process_gets_an_err():
    store = InMemoryCheckpointStore()
    held, go = anyio.Event(), anyio.Event()

    async def slow(state):
        held.set()
        await go.wait()

    def build(node):
        builder = WorkflowBuilder("g").add_node("a", lambda s: None).add_node("b", node)
        builder.add_node("c", lambda s: None).add_edge("a", "b").add_edge("b", "c")
        return builder.set_entry("a").set_terminal("c").build(checkpoints=store)

    outcomes = []

    async def first():
        outcomes.append(await build(slow).execute("x", run_id="r"))

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        await held.wait()
        assert (await build(lambda s: None).recover("r")).is_ok()
        go.set()
    assert isinstance(outcomes[0].unwrap_err().cause, CheckpointConflictError)
    assert (await store.runs())[0].status is GraphRunStatus.COMPLETED


@pytest.mark.parametrize("recovered", [False, True])
async def test_a_finished_branch_of_a_step_is_kept_while_others_still_run(recovered):
    store, log = InMemoryCheckpointStore(), []

    def build(slow):
        builder = WorkflowBuilder("g").add_node("a", lambda s: None).reduce("got", "append")
        builder.add_node("slow", slow)
        for name in ("q1", "q2"):

            async def quick(state, name=name):
                log.append(name)
                return {"got": name}

            builder.add_node(name, quick)
        builder.add_node("z", lambda s: None)
        for name in ("slow", "q1", "q2"):
            builder.add_edge("a", name).add_edge(name, "z")
        return builder.set_entry("a").set_terminal("z").build(checkpoints=store)

    async def both_stored():
        return {"q1", "q2"} <= {n for item in await store.history("r") for n in item.nodes}

    async def crash(state):
        await wait_until(both_stored)
        raise Crash if not recovered else RuntimeError("no")

    async def fine(state):
        return {"got": "slow"}

    if recovered:
        assert (await build(crash).execute("x", run_id="r")).is_err()
    else:
        with pytest.raises(BaseExceptionGroup):
            await build(crash).execute("x", run_id="r")
    result = (await build(fine).recover("r")).unwrap()
    assert log == ["q1", "q2"]
    assert result.final_state["got"] == ["slow", "q1", "q2"]
    skipped = {node.node_name for node in result.node_results if node.skipped}
    assert skipped == {"q1", "q2"}


async def test_without_a_store_nothing_is_kept_but_pauses():
    engine = chain(None, [])
    (await engine.execute("x")).unwrap()
    assert await engine.checkpoints.runs() == []


async def test_checkpoint_enabled_keeps_every_step_in_memory():
    engine = chain(None, [], config=GraphConfig(checkpoint_enabled=True))
    (await engine.execute("x", run_id="r")).unwrap()
    history = await engine.history("r")
    assert [item.nodes for item in history] == [(), *((name,) for name in "abcde")]


async def test_async_durability_keeps_the_same_by_the_end():
    store = InMemoryCheckpointStore()
    config = GraphConfig(checkpoint_durability="async")
    (await chain(store, [], config=config).execute("x", run_id="r")).unwrap()
    assert [item.seq for item in await store.history("r")] == [0, 1, 2, 3, 4, 5]


async def test_async_durability_tells_a_failing_store():
    class Full(InMemoryCheckpointStore):
        async def append(self, checkpoint, run=None):
            raise OSError("disk full")

    config = GraphConfig(checkpoint_durability="async")
    error = (await chain(Full(), [], config=config).execute("x")).unwrap_err()
    assert isinstance(error.cause, OSError)


async def test_a_failing_store_is_an_err_that_names_it():
    class Full(InMemoryCheckpointStore):
        async def append(self, checkpoint, run=None):
            raise OSError("disk full")

    log = []
    error = (await chain(Full(), log).execute("x")).unwrap_err()
    assert isinstance(error, GraphExecutionError)
    assert isinstance(error.cause, OSError)
    assert log == ["a"]  # the next node does not begin before the step is kept


async def test_time_travel_shows_the_state_at_any_checkpoint():
    store = InMemoryCheckpointStore()
    names = [f"n{number}" for number in range(80)]  # several whole checkpoints
    engine = chain(store, [], names)
    (await engine.execute("x", run_id="r")).unwrap()
    for seq in (0, 1, 31, 32, 33, 64, 79, 80):
        assert (await engine.state_at("r", seq)).get("names", []) == names[:seq]
    with pytest.raises(WorkflowNotFoundError, match="r at checkpoint 99"):
        await engine.state_at("r", 99)
    assert sum(item.whole for item in await engine.history("r")) == 4


async def test_a_fork_begins_at_a_checkpoint_with_other_values():
    store, log = InMemoryCheckpointStore(), []
    engine = chain(store, log)
    (await engine.execute("x", run_id="r")).unwrap()
    log.clear()
    forked = await engine.fork("r", 2, update={"names": ["other"]})
    result = (await engine.recover(forked)).unwrap()
    assert log == ["c", "d", "e"]
    assert result.final_state["names"] == ["other", "c", "d", "e"]
    assert (await engine.state_at("r"))["names"] == list("abcde")
    run = next(run for run in await store.runs() if run.run_id == forked)
    assert (run.parent_run, run.parent_seq) == ("r", 2)


async def test_keep_last_n_prunes_and_leaves_the_run_usable():
    store = InMemoryCheckpointStore()
    names = [f"n{number}" for number in range(100)]
    config = GraphConfig(checkpoint_keep=5)
    with pytest.raises(Crash):
        await chain(store, [], names, broken="n97", config=config).execute("x", run_id="r")
    assert len(await store.history("r")) < 70
    log = []
    result = (await chain(store, log, names, config=config).recover("r")).unwrap()
    assert log == names[97:]
    assert result.final_state["names"] == names
    assert len(await store.history("r")) <= 5 + 32


async def test_runs_that_ended_long_ago_are_forgotten_and_paused_ones_never():
    with clock.use(FakeClock()) as time:
        builder = WorkflowBuilder("g", GraphConfig(checkpoint_ttl=60))
        builder.add_node("a", human_prompt="?").set_entry("a").set_terminal("a")
        store = InMemoryCheckpointStore()
        engine = builder.build(checkpoints=store)
        for run_id in ("old", "paused"):
            with pytest.raises(Exception, match="WF_016"):
                await engine.execute("x", run_id=run_id)
        (await engine.resume("old", "yes")).unwrap()
        time.advance(121)
        with pytest.raises(Exception, match="WF_016"):
            await engine.execute("x", run_id="new")
        assert {run.run_id for run in await store.runs()} == {"paused", "new"}


async def test_a_value_that_cannot_be_kept_is_an_err_with_its_place_and_a_fix():
    builder = WorkflowBuilder("g").add_node("a", lambda s: {"box": {"in": [1, Stranger(1)]}})
    builder.add_node("b", lambda s: None).add_edge("a", "b").set_entry("a").set_terminal("b")
    error = (await builder.build(checkpoints=InMemoryCheckpointStore()).execute("x")).unwrap_err()
    assert isinstance(error, StateNotStorableError)
    assert error.node == "a"
    assert "Stranger at" in str(error)
    assert "box.in[1]" in str(error)
    assert "serialization.register" in str(error)
    # Nothing has to be kept without a store.
    assert (await builder.build().execute("x")).is_ok()


VALUES = [
    None,
    True,
    5,
    -(10**30),
    1.5,
    "text",
    b"\x00\xff",
    [1, [2]],
    {"a": {"b": []}},
    (1, (2, "x")),
    {1, 2},
    frozenset({"a"}),
    {1: "one", ("a", 2): "two"},
    {"$type": "odd"},
    datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    datetime(2026, 1, 2),  # noqa: DTZ001 - naive ones too
    date(2026, 1, 2),
    timedelta(days=1, microseconds=5),
    Decimal("1.10"),
    UUID(int=7),
    Money(Decimal("9.90")),
    [Money(Decimal(1)), (datetime(2026, 1, 1, tzinfo=UTC),)],
    Mood.GOOD,
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_equal_and_of_its_type(value):
    back = decode(encode({"value": value}))["value"]
    assert back == value
    if not isinstance(value, StrEnum):
        assert type(back) is type(value)


@pytest.mark.parametrize("value", [1, 1.5, "é", {"a": [None, True]}, [[]], 2**70], ids=repr)
def test_plain_values_are_written_quickly_in_the_same_bytes(value):
    assert encode({"value": value}) == dumps({"value": value}, object)


@pytest.mark.parametrize(
    "value", [Colour.RED, Stranger(1), object(), float("nan"), lambda: 1, "\ud800"]
)
def test_a_value_that_would_come_back_different_is_refused(value):
    with pytest.raises(Exception, match="LEX_ERR_SERIAL"):
        encode({"value": [value]})


async def test_progress_colours_the_picture():
    store = InMemoryCheckpointStore()
    engine = chain(store, [], "abc", broken="b", error=RuntimeError)
    (await engine.execute("x", run_id="r")).unwrap_err()
    progress = await engine.progress("r")
    assert progress == {"a": "done", "b": "failed", "c": "waiting"}
    assert "class n1 failed" in engine.to_mermaid(progress)
    assert 'n1 [label="b", shape=box, style=filled, fillcolor="#f4b6b6"];' in engine.to_dot(
        progress
    )
