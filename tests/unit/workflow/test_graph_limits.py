"""Failures, time limits, cancellation, streaming, events and hooks."""

import asyncio
import itertools

import anyio
import pytest

from lexigram.contracts.workflow import GraphRunStatus
from lexigram.events import EventBus
from lexigram.hooks import HookRegistry
from lexigram.workflow.checkpoint import InMemoryCheckpointStore
from lexigram.workflow.config import GraphConfig
from lexigram.workflow.errors import (
    GraphCancelledError,
    GraphTimeoutError,
    HumanInputRequiredError,
    NodeExecutionError,
)
from lexigram.workflow.events import (
    WorkflowCompletedEvent,
    WorkflowFailedEvent,
    WorkflowStartedEvent,
)
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.hooks import (
    WorkflowCompletedHook,
    WorkflowStartedHook,
    WorkflowStateTransitionedHook,
)

pytestmark = pytest.mark.anyio


def row(config=None, store=None, **nodes):
    builder = WorkflowBuilder("row", config)
    names = list(nodes)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for source, target in itertools.pairwise(names):
        builder.add_edge(source, target)
    return builder.set_entry(names[0]).set_terminal(names[-1]).build(checkpoints=store)


def beside(config=None, store=None, **nodes):
    """A start, and all nodes beside each other after it."""
    builder = WorkflowBuilder("beside", config).add_node("start", lambda s: None)
    for name, node in nodes.items():
        builder.add_node(name, node).add_edge("start", name).set_terminal(name)
    return builder.set_entry("start").build(checkpoints=store)


async def forever(state):
    await anyio.sleep_forever()


def broken(state):
    raise KeyError("lost")


@pytest.mark.parametrize("shape", [row, beside])
async def test_a_failing_node_is_an_err_with_node_cause_and_state(shape):
    engine = shape(a=lambda s: {"n": 1}, b=broken)
    error = (await engine.execute("x", run_id="r")).unwrap_err()
    assert isinstance(error, NodeExecutionError)
    assert (error.node, error.run_id) == ("b", "r")
    assert isinstance(error.cause, KeyError)
    assert error.state["input"] == "x"
    assert "Node 'b' failed: 'lost'" in str(error)


async def test_a_failing_branch_stops_the_others_and_nothing_is_left_running():
    stopped = anyio.Event()

    async def waits(state):
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async def fails(state):
        await anyio.lowlevel.checkpoint()
        raise RuntimeError("no")

    before = asyncio.all_tasks()
    with anyio.fail_after(60):
        error = (await beside(a=waits, b=fails).execute("x")).unwrap_err()
    assert error.node == "b"
    assert stopped.is_set()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("shape", [row, beside])
async def test_a_node_that_takes_too_long_is_cancelled_and_named(shape):
    engine = shape(GraphConfig(node_timeout=0.02), a=lambda s: {"n": 1}, b=forever)
    with anyio.fail_after(60):
        error = (await engine.execute("x")).unwrap_err()
    assert isinstance(error, NodeExecutionError)
    assert error.node == "b"
    assert "Node 'b' timed out after 0.02s" in str(error)
    assert isinstance(error.cause, TimeoutError)


async def test_a_throttled_node_is_timed_from_its_own_start():
    async def short(state):
        await anyio.sleep(0.03)

    config = GraphConfig(node_timeout=2, max_parallel_branches=1, total_timeout=30)
    assert (await beside(config, a=short, b=short, c=short).execute("x")).is_ok()


@pytest.mark.parametrize("shape", [row, beside])
@pytest.mark.parametrize("node_timeout", [0.0, 3600.0])
async def test_the_whole_run_has_a_limit_too(shape, node_timeout):
    config = GraphConfig(total_timeout=0.02, node_timeout=node_timeout)
    with anyio.fail_after(60):
        error = (await shape(config, a=lambda s: None, b=forever).execute("x")).unwrap_err()
    assert isinstance(error, GraphTimeoutError)
    assert isinstance(error, TimeoutError)
    assert error.timeout == 0.02


async def test_a_config_given_to_a_run_replaces_the_other():
    engine = row(GraphConfig(node_timeout=3600), a=forever)
    with anyio.fail_after(60):
        assert (await engine.execute("x", config=GraphConfig(node_timeout=0.01))).is_err()


async def test_nodes_that_never_wait_leave_room_for_others():
    seen = []
    names = {f"n{number}": lambda s: seen.append(len(others)) for number in range(300)}
    others = []

    async def other():
        while len(seen) < 300:
            others.append(1)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await row(**names).execute("x")
    assert len(others) > 2


@pytest.mark.parametrize("shape", [row, beside])
async def test_cancel_stops_a_run_and_says_so(shape):
    store, began = InMemoryCheckpointStore(), anyio.Event()

    async def waits(state):
        began.set()
        await anyio.sleep_forever()

    engine = shape(store=store, a=lambda s: None, b=waits)
    outcome = []

    async def run():
        outcome.append(await engine.execute("x", run_id="r"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await began.wait()
            assert await engine.cancel("r") is True
    assert isinstance(outcome[0].unwrap_err(), GraphCancelledError)
    assert (await store.runs())[0].status is GraphRunStatus.CANCELLED
    assert await engine.cancel("r") is False


@pytest.mark.parametrize("shape", [row, beside])
async def test_cancellation_from_outside_passes_and_the_run_can_be_recovered(shape):
    store, began = InMemoryCheckpointStore(), anyio.Event()

    async def waits(state):
        began.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(shape(store=store, a=lambda s: {"n": 1}, b=waits).execute, "x", None)
        await began.wait()
        group.cancel_scope.cancel()
    (run,) = await store.runs()
    assert run.status is GraphRunStatus.RUNNING
    result = await shape(store=store, a=broken, b=lambda s: {"m": 1}).recover(run.run_id)
    if shape is row:
        assert result.unwrap().final_state["m"] == 1


async def test_a_stream_gives_each_node_when_it_finishes():
    seen, go = [], anyio.Event()

    async def waits(state):
        await go.wait()
        return {"slow": 1}

    stream = beside(slow=waits, quick=lambda s: {"quick": 1}).stream("x")
    async for node in stream:
        seen.append(node.node_name)
        if node.node_name == "quick":
            go.set()
    assert seen == ["start", "quick", "slow"]
    assert stream.result.final_state["slow"] == 1


async def test_a_stream_raises_the_failure_or_the_pause_at_its_end():
    seen = []
    with pytest.raises(NodeExecutionError, match="'b' failed"):
        async for node in row(a=lambda s: None, b=broken).stream("x"):
            seen.append(node.node_name)  # noqa: PERF401 - what came before the error counts
    builder = WorkflowBuilder("g").add_node("a", human_prompt="?")
    with pytest.raises(HumanInputRequiredError):
        async for node in builder.set_entry("a").set_terminal("a").build().stream("x"):
            seen.append(node.node_name)  # noqa: PERF401 - as above
    assert seen == ["a"]


async def test_leaving_a_stream_cancels_its_run():
    stopped = anyio.Event()

    async def waits(state):
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    stream = row(a=lambda s: None, b=waits).stream("x")
    async for _ in stream:
        break
    await stream.aclose()
    with anyio.fail_after(60):
        await stopped.wait()


async def test_events_and_hooks_tell_how_runs_go():
    events, hooks, told = EventBus(), HookRegistry(), []
    for kind in (WorkflowStartedEvent, WorkflowCompletedEvent, WorkflowFailedEvent):
        events.subscribe(kind, lambda event: told.append(type(event).__name__))
    for kind in (WorkflowStartedHook, WorkflowCompletedHook):
        hooks.on(kind, lambda payload: told.append(type(payload).__name__))
    hooks.on(WorkflowStateTransitionedHook, lambda p: told.append(f"{p.from_state}>{p.to_state}"))

    def build(end):
        builder = WorkflowBuilder("g").add_node("a", human_prompt="?").add_node("b", end)
        builder.add_edge("a", "b").set_entry("a").set_terminal("b")
        return builder.build(events=events, hooks=hooks)

    for end in (lambda s: None, broken):
        engine = build(end)
        with pytest.raises(HumanInputRequiredError):
            await engine.execute("x")
        await engine.resume("yes")
    assert told == [
        *("WorkflowStartedEvent", "WorkflowStartedHook", "running>paused", "paused>running"),
        *("running>completed", "WorkflowCompletedEvent", "WorkflowCompletedHook"),
        *("WorkflowStartedEvent", "WorkflowStartedHook", "running>paused", "paused>running"),
        *("running>failed", "WorkflowFailedEvent", "WorkflowCompletedHook"),
    ]


async def test_a_listener_that_fails_does_not_fail_the_run():
    events = EventBus()
    events.subscribe(WorkflowStartedEvent, broken)
    builder = WorkflowBuilder("g").add_node("a", lambda s: 1).set_entry("a").set_terminal("a")
    assert (await builder.build(events=events).execute("x")).is_ok()


def test_pictures_show_kinds_conditions_and_ends():
    builder = WorkflowBuilder("shop").add_gate("gate", {"ask": lambda s: 1, "end": lambda s: 0})
    builder.add_node("ask", human_prompt="?").add_node("end", lambda s: None)
    builder.add_edge("ask", "end", label='so "it" goes').set_entry("gate").set_terminal("end")
    engine = builder.build()
    assert engine.to_mermaid() == (
        "flowchart TB\n"
        '    n0{"gate"}\n'
        '    n1[/"ask"/]\n'
        '    n2["end"]\n'
        '    start(("start"))\n'
        '    stop(("end"))\n'
        "    start --> n0\n"
        "    n0 -.-> n1\n"
        "    n0 -.-> n2\n"
        '    n1 -->|"so #quot;it#quot; goes"| n2\n'
        "    n2 --> stop\n"
    )
    assert engine.to_dot() == (
        'digraph "shop" {\n'
        "    rankdir=TB;\n"
        '    n0 [label="gate", shape=diamond];\n'
        '    n1 [label="ask", shape=parallelogram];\n'
        '    n2 [label="end", shape=box];\n'
        '    start [label="start", shape=circle];\n'
        '    stop [label="end", shape=circle];\n'
        "    start -> n0;\n"
        "    n0 -> n1 [style=dashed];\n"
        "    n0 -> n2 [style=dashed];\n"
        '    n1 -> n2 [label="so \\"it\\" goes"];\n'
        "    n2 -> stop;\n"
        "}\n"
    )
