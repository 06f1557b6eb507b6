"""Random graphs against a simple model: who runs, in which order, with which end state."""

from __future__ import annotations

import random

import anyio
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import Crash

from lexigram.workflow.checkpoint import InMemoryCheckpointStore
from lexigram.workflow.config import GraphConfig
from lexigram.workflow.errors import HumanInputRequiredError, NodeExecutionError
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.nodes import HumanNode


@frozen
class Shape:
    """A random graph: edges point to higher numbers, so it has no loop."""

    count: int
    # (source, target) -> whether its condition holds; None has no condition
    edges: dict[tuple[int, int], bool | None]
    humans: frozenset[int]

    def targets(self, node):
        return [(t, held) for (s, t), held in self.edges.items() if s == node]


@st.composite
def shapes(draw, *, humans=False):
    count = draw(st.integers(2, 9))
    edges = {}
    for target in range(1, count):
        sources = draw(st.sets(st.integers(0, target - 1), min_size=1, max_size=3))
        for source in sorted(sources):
            edges[source, target] = draw(st.sampled_from([None, None, True, False]))
    chosen = draw(st.sets(st.integers(0, count - 1), max_size=2)) if humans else set()
    # The order in which edges were added must not matter to who runs.
    order = draw(st.permutations(list(edges)))
    return Shape(count, {key: edges[key] for key in order}, frozenset(chosen))


class Model:
    """Who runs and at which depth, found without tokens, joins or steps."""

    def __init__(self, shape):
        self.runs = {0}
        for node in range(1, shape.count):
            taken = [s for (s, t), held in shape.edges.items() if t == node and held is not False]
            if self.runs & set(taken):
                self.runs.add(node)
        self.before = {
            node: {
                s
                for (s, t), held in shape.edges.items()
                if t == node and held is not False and s in self.runs
            }
            for node in self.runs
        }

    def ancestors(self, node):
        found, pending = set(), [node]
        while pending:
            for source in self.before[pending.pop()]:
                if source not in found:
                    found.add(source)
                    pending.append(source)
        return found


def build(shape, log, store=None, config=None, *, stop=None, stop_with=Crash, seed=0):
    """``stop``: the number of node runs after which the next one raises."""
    dice = random.Random(seed)
    builder = WorkflowBuilder("random", config).reduce("order", "append").reduce("depth", "max")
    for number in range(shape.count):
        name = f"n{number}"
        if number in shape.humans:
            builder.add_node(name, HumanNode(name, prompt=name, output_key=f"by_{name}"))
            continue

        async def node(state, name=name):
            for _ in range(dice.randint(0, 3)):
                await anyio.lowlevel.checkpoint()
            if stop is not None and len(log) >= stop:
                raise stop_with(name)
            log.append(name)
            seen = sorted(key for key in state if key.startswith("by_"))
            return {f"by_{name}": seen, "order": [name], "depth": len(seen)}

        builder.add_node(name, node)
    for (source, target), held in shape.edges.items():
        condition = None if held is None else lambda s, held=held: held
        builder.add_edge(f"n{source}", f"n{target}", condition=condition)
    builder.set_entry("n0").set_terminal(f"n{shape.count - 1}")
    return builder.build(checkpoints=store)


def end_state(result):
    hidden = ("_run_id", "_history")
    return {key: value for key, value in result.final_state.items() if key not in hidden}


async def to_the_end(engine, first):
    """Answer every pause."""
    call = first
    while True:
        try:
            return (await call).unwrap()
        except HumanInputRequiredError as pause:
            call = engine.resume(pause.run_id, f"answer to {pause.node}", node=pause.node)


configs = st.builds(
    GraphConfig,
    max_parallel_branches=st.integers(0, 3),
    parallel_branches=st.booleans(),
)


@given(shapes(), configs, st.integers(0, 99))
@settings(max_examples=150)
def test_every_node_runs_exactly_as_the_edges_say_and_joins_wait(shape, config, seed):
    async def check():
        log, model = [], Model(shape)
        result = (await build(shape, log, config=config, seed=seed).execute("x")).unwrap()
        assert sorted(log) == sorted(f"n{node}" for node in model.runs)  # each once
        for node in model.runs:
            for earlier in model.ancestors(node):
                assert log.index(f"n{earlier}") < log.index(f"n{node}")
                assert f"by_n{earlier}" in result.final_state[f"by_n{node}"]
        assert result.iterations == len(log)
        # What happened does not depend on who finished first.
        again = (await build(shape, [], config=config, seed=seed + 1).execute("x")).unwrap()
        assert end_state(again) == end_state(result)

    anyio.run(check)


@given(shapes(humans=True), st.data(), configs)
@settings(max_examples=100)
def test_a_crash_anywhere_and_resume_end_as_an_undisturbed_run(shape, data, config):
    async def check():
        calm = build(shape, [], config=config)
        undisturbed = await to_the_end(calm, calm.execute("x"))
        log, store = [], InMemoryCheckpointStore()
        crashes = data.draw(st.lists(st.integers(0, shape.count), max_size=3), label="crashes")
        call = build(shape, log, store, config).execute("x", run_id="r")
        engine = None
        for stop in sorted(crashes):
            engine = build(shape, log, store, config, stop=stop)
            if await crashed(engine):
                continue
        engine = build(shape, log, store, config)
        stored = await store.load("r")
        if stored is None:
            final = await to_the_end(engine, call)
        else:
            call.close()
            final = await to_the_end(engine, engine.recover("r"))
        assert end_state(final) == end_state(undisturbed)

    async def crashed(engine):
        """Run or go on until the crash, a pause or the end; True for a crash."""
        store = engine.checkpoints
        try:
            if await store.load("r") is None:
                await engine.execute("x", run_id="r")
            else:
                await engine.recover("r")
        except HumanInputRequiredError as pause:
            try:
                await engine.resume("r", f"answer to {pause.node}", node=pause.node)
            except (Crash, BaseExceptionGroup):
                return True
            except HumanInputRequiredError:
                return False
        except (Crash, BaseExceptionGroup):
            return True
        return False

    anyio.run(check)


@given(shapes(), st.integers(0, 9))
@settings(max_examples=100)
def test_one_by_one_a_crash_repeats_no_finished_node(shape, stop):
    async def check():
        log, store = [], InMemoryCheckpointStore()
        config = GraphConfig(parallel_branches=False)
        try:
            await build(shape, log, store, config, stop=stop).execute("x", run_id="r")
        except Crash:
            (await build(shape, log, store, config).recover("r")).unwrap()
        assert sorted(log) == sorted(f"n{node}" for node in Model(shape).runs)

    anyio.run(check)


@given(shapes(), st.integers(0, 9), st.integers(0, 99))
@settings(max_examples=100)
def test_a_failure_names_a_node_that_the_edges_reach_and_recover_ends_the_run(shape, stop, seed):
    async def check():
        log, store, model = [], InMemoryCheckpointStore(), Model(shape)
        engine = build(shape, log, store, stop=stop, stop_with=RuntimeError, seed=seed)
        result = await engine.execute("x", run_id="r")
        if stop >= len(model.runs):
            result.unwrap()
            return
        error = result.unwrap_err()
        assert isinstance(error, NodeExecutionError)
        assert int(error.node[1:]) in model.runs
        assert isinstance(error.cause, RuntimeError)
        calm = (await build(shape, []).execute("x")).unwrap()
        final = (await build(shape, [], store).recover("r")).unwrap()
        assert end_state(final) == end_state(calm)

    anyio.run(check)


@given(shapes(), st.integers(0, 30))
@settings(max_examples=60)
def test_a_cancelled_run_can_always_be_recovered(shape, turns):
    async def check():
        store = InMemoryCheckpointStore()
        calm = (await build(shape, []).execute("x")).unwrap()
        async with anyio.create_task_group() as group:
            engine = build(shape, [], store, seed=turns)
            group.start_soon(engine.execute, "x", None)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        for run in await store.runs():
            final = (await build(shape, [], store).recover(run.run_id)).unwrap()
            assert end_state(final) == end_state(calm)

    anyio.run(check)


@pytest.mark.parametrize("pieces", [0, 1, 7])
def test_a_fan_out_runs_every_piece_once(pieces):
    async def check():
        log = []
        builder = (
            WorkflowBuilder("g")
            .add_node("a", lambda s: None)
            .add_node("b", lambda s: log.append(s["piece"]))
            .add_node("c", lambda s: log.append("end"))
            .add_edge("a", "b", each=lambda s: [{"piece": n} for n in range(pieces)])
            .add_edge("b", "c")
            .set_entry("a")
            .set_terminal("c")
        )
        (await builder.build().execute("x")).unwrap()
        assert log == [*range(pieces), "end"]

    anyio.run(check)
