"""Random graphs, written down and read back between all nodes, against the engine in one go."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.workflow.test_graph_properties import build, configs, end_state, shapes

from lexigram.workflow.durable import StepTerms
from lexigram.workflow.durable.orchestrated._graph import GraphFlow
from lexigram.workflow.durable.orchestrated._pipeline import PipelineFlow
from lexigram.workflow.durable.orchestrated.flow import read, write
from lexigram.workflow.pipeline import ConditionalStep, FunctionStep, ParallelStep, Pipeline


def again(document):
    """As another process would find it."""
    return read(write(document, "a test"))


async def walked(flow, given, order):
    """Run every piece at a place of its own, those side by side in any order; turns it took."""
    document, turns, done = again(flow.start(given)), 0, []
    while True:
        walk = flow.at(document, "run")
        pieces = walk.ready()
        if not pieces:
            return document, turns, done
        turns += 1
        walk.begin(pieces)
        begun = again(walk.document())
        changes = {}
        for piece in order.sample(list(pieces), len(pieces)):
            elsewhere = flow.at(begun, "run")
            changes[piece.key] = again(await elsewhere.run(piece))
            done.append(piece.name)
        walk = flow.at(begun, "run")
        walk.take([(piece, changes[piece.key]) for piece in pieces])
        document = again(walk.document())


@given(shapes(), configs, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_a_graph_moved_node_by_node_ends_as_one_in_one_process(shape, config, order):
    async def check():
        expected = (await build(shape, [], config=config).execute("x")).unwrap()
        log = []
        flow = GraphFlow("random", build(shape, log, config=config), StepTerms(), {}, ())
        document, turns, done = await walked(flow, "x", order)
        state = end_state(expected)
        assert flow.show(document) == {k: v for k, v in state.items() if k[:1] != "_"}
        assert done == log
        assert sorted(log) == sorted(result.node_name for result in expected.node_results)
        assert turns < len(flow.plan().steps)

    anyio.run(check)


def step(name, after, log):
    async def run(context):
        log.append(name)
        context.metadata[f"by {name}"] = sorted(context.step_results)
        return [name, *(context.get_result(other) for other in after)]

    return FunctionStep(name, run, after)


@st.composite
def pipelines(draw):
    """Steps that depend on earlier ones; some are two side by side, some a choice."""
    count = draw(st.integers(1, 6))
    kinds = [draw(st.sampled_from(["plain", "plain", "both", "choice"])) for _ in range(count)]
    after = [
        sorted(draw(st.sets(st.integers(0, n - 1), max_size=2))) if n else [] for n in range(count)
    ]
    is_concurrent = draw(st.booleans())

    def make(log):
        steps = []
        for number, kind in enumerate(kinds):
            name, needs = f"s{number}", [f"s{other}" for other in after[number]]
            if kind == "plain":
                steps.append(step(name, needs, log))
            elif kind == "both":
                inside = [step(f"{name}{side}", [], log) for side in "ab"]
                steps.append(ParallelStep(name, inside, needs))
            else:
                ways = [step(f"{name}{side}", [], log) for side in "yn"]
                steps.append(ConditionalStep(name, lambda c, n=number: n % 2, *ways, needs))
        return Pipeline("random", steps, concurrent=is_concurrent)

    return make


@given(pipelines(), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_a_pipeline_moved_step_by_step_gives_what_one_in_one_process_gives(make, order):
    async def check():
        one, log = [], []
        expected = (await make(one).execute({"k": 1})).unwrap()
        flow = PipelineFlow("random", make(log), StepTerms(), {}, ())
        document, turns, _ = await walked(flow, {"k": 1}, order)
        assert flow.show(document)["results"] == expected.step_results
        assert sorted(log) == sorted(one)
        assert turns < len(flow.plan().steps)

    anyio.run(check)


@pytest.mark.parametrize("version", [1, 2])
def test_the_shape_of_a_graph_is_that_of_its_nodes_and_edges_only(version):
    def graph(*edges):
        from lexigram.workflow.graph import WorkflowBuilder

        builder = WorkflowBuilder("g", version=version)
        for name in "abc":
            builder.add_node(name, lambda state: {})
        for source, target in edges:
            builder.add_edge(source, target)
        return builder.set_entry("a").set_terminal("c").build().shape

    plain = graph("ab", "bc")
    assert plain == graph("ab", "bc")
    assert plain != graph("ab", "bc", "ac")
