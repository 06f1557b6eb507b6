"""What runs, when, and on which state."""

import itertools

import anyio
import pytest

from lexigram.workflow.config import GraphConfig
from lexigram.workflow.errors import CycleDetectedError, StateConflictError
from lexigram.workflow.graph import WorkflowBuilder, WorkflowEdge

pytestmark = pytest.mark.anyio


def graph(edges, *, entry="a", ends=(), log=None, config=None, **kinds):
    """A builder whose nodes note that they ran; ``kinds`` replaces some of them."""
    builder = WorkflowBuilder("g", config)
    names = dict.fromkeys([entry, *(end for edge in edges for end in edge[:2])])
    for name in names:

        def note(state, name=name):
            if log is not None:
                log.append(name)
            return {name: state["_iteration"]}

        builder.add_node(name, kinds.get(name, note), writes={name})
    for source, target, *condition in edges:
        builder.add_edge(source, target, condition=condition[0] if condition else None)
    for end in ends or [list(names)[-1]]:
        builder.set_terminal(end)
    return builder.set_entry(entry)


async def ran(builder, **options):
    result = (await builder.build().execute("x", **options)).unwrap()
    return [node.node_name for node in result.node_results]


async def test_nodes_run_along_the_edges():
    assert await ran(graph([("a", "b"), ("b", "c")])) == ["a", "b", "c"]


async def test_every_branch_of_a_fan_out_goes_on_to_its_end():
    edges = [("a", "b"), ("b", "b2"), ("a", "c"), ("c", "c2")]
    assert set(await ran(graph(edges, ends=["b2", "c2"]))) == {"a", "b", "b2", "c", "c2"}


async def test_a_join_waits_for_the_longest_branch_and_runs_once():
    edges = [("a", "b"), ("b", "b2"), ("b2", "b3"), ("b3", "j"), ("a", "c"), ("c", "j")]
    order = await ran(graph(edges, ends=["j"]))
    assert order.count("j") == 1
    assert order[-1] == "j"


async def test_a_join_does_not_wait_for_a_branch_that_is_not_taken():
    def never(state):
        return False

    edges = [("a", "b"), ("b", "b2", never), ("b2", "j"), ("a", "c"), ("c", "j")]
    assert await ran(graph(edges, ends=["j"])) == ["a", "b", "c", "j"]


async def test_skipping_passes_through_a_whole_branch():
    def never(state):
        return False

    edges = [("a", "b", never), ("b", "b2"), ("b2", "j"), ("a", "c"), ("c", "j"), ("j", "k")]
    assert await ran(graph(edges, ends=["k"])) == ["a", "c", "j", "k"]


async def test_a_node_that_only_skipped_branches_lead_to_never_runs():
    def never(state):
        return False

    edges = [("a", "b", never), ("b", "j"), ("a", "c", never), ("c", "j")]
    result = (await graph(edges, ends=["j"]).build().execute("x")).unwrap()
    assert [node.node_name for node in result.node_results] == ["a"]
    assert result.terminated_at is None


async def test_nodes_of_a_step_see_the_same_state_whatever_finishes_first():
    async def slow(state):
        await anyio.sleep(0.01)
        return {"slow": "c" in state}

    async def quick(state):
        return {"c": 1, "quick": "slow" in state}

    edges = [("a", "b"), ("a", "c"), ("b", "j"), ("c", "j")]
    builder = graph(edges, ends=["j"], b=slow, c=quick)
    state = (await builder.build().execute("x")).unwrap().final_state
    assert (state["slow"], state["quick"]) == (False, False)


async def test_changes_are_taken_over_in_the_order_of_the_edges():
    gate = anyio.Event()

    async def first(state):
        await gate.wait()
        return {"seen": "first"}

    async def second(state):
        gate.set()
        return {"seen": "second"}

    edges = [("a", "b"), ("a", "c"), ("b", "j"), ("c", "j")]
    builder = graph(edges, ends=["j"], b=first, c=second).reduce("seen", "append")
    result = (await builder.build().execute("x")).unwrap()
    assert result.final_state["seen"] == ["first", "second"]
    assert [node.node_name for node in result.node_results] == ["a", "b", "c", "j"]


async def test_branches_really_run_at_once():
    inside = []
    together = anyio.Event()

    async def meet(state):
        inside.append(1)
        if len(inside) == 3:
            together.set()
        await together.wait()

    edges = [("a", name) for name in "bcd"] + [(name, "j") for name in "bcd"]
    with anyio.fail_after(60):
        await ran(graph(edges, ends=["j"], b=meet, c=meet, d=meet))


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_max_parallel_branches_throttles_and_drops_nothing(limit):
    now, most = 0, 0

    async def work(state):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        now -= 1

    edges = [("a", name) for name in "bcdef"] + [(name, "j") for name in "bcdef"]
    builder = graph(
        edges,
        ends=["j"],
        config=GraphConfig(max_parallel_branches=limit),
        **dict.fromkeys("bcdef", work),
    )
    assert sorted(await ran(builder)) == sorted("abcdefj")
    assert most == limit


async def test_without_parallel_branches_nodes_run_one_by_one_in_edge_order():
    def writes(state):
        return {"same": [*state.get("same", []), state["_iteration"]]}

    edges = [("a", "c"), ("a", "b"), ("c", "j"), ("b", "j")]
    builder = graph(
        edges, ends=["j"], config=GraphConfig(parallel_branches=False), b=writes, c=writes
    )
    result = (await builder.build().execute("x")).unwrap()
    assert [node.node_name for node in result.node_results] == ["a", "c", "b", "j"]
    # Each sees what the one before it wrote, so no reducer is needed.
    assert result.final_state["same"] == [1, 2]


async def test_a_loop_runs_until_its_condition_ends_it():
    def count(state):
        return {"n": state.get("n", 0) + 1}

    builder = graph(
        [("a", "b"), ("b", "a", lambda s: s["n"] < 4), ("b", "c", lambda s: s["n"] >= 4)],
        a=count,
        ends=["c"],
    )
    assert await ran(builder) == ["a", "b"] * 4 + ["c"]


async def test_a_loop_with_branches_begins_anew_when_all_of_them_are_done():
    def count(state):
        return {"n": state.get("n", 0) + 1}

    more, enough = (lambda s: s["n"] < 3), (lambda s: s["n"] >= 3)
    edges = [("a", "b"), ("a", "c"), ("c", "c2"), ("b", "a", more), ("c2", "a", more)]
    edges += [("b", "end", enough), ("c2", "end", enough)]
    order = await ran(graph(edges, a=count, ends=["end"]))
    assert order.count("a") == 3
    assert order.count("c2") == 3
    assert order[-1] == "end"
    assert order.count("end") == 1


async def test_a_loop_inside_a_loop_ends_its_turns_first():
    def outer(state):
        return {"o": state.get("o", 0) + 1, "i": 0}

    def inner(state):
        return {"i": state["i"] + 1}

    edges = [
        ("a", "i"),
        ("i", "i2"),
        ("i2", "i", lambda s: s["i"] < 2),
        ("i2", "o2", lambda s: s["i"] >= 2),
        ("o2", "a", lambda s: s["o"] < 2),
        ("o2", "end", lambda s: s["o"] >= 2),
    ]
    order = await ran(graph(edges, a=outer, i=inner, ends=["end"]))
    assert order == ["a", *["i", "i2"] * 2, "o2"] * 2 + ["end"]


async def test_a_node_that_leads_back_and_on_at_once_does_not_hang():
    def count(state):
        return {"n": state.get("n", 0) + 1}

    def again(s):
        return s["n"] < 3

    edges = [("a", "b"), ("a", "c"), ("b", "a", again), ("b", "d"), ("c", "d")]
    edges += [("d", "a", again), ("d", "end", lambda s: s["n"] >= 3)]
    with anyio.fail_after(60):
        order = await ran(graph(edges, a=count, ends=["end"]))
    assert order == ["a", "b", "c", "d"] * 3 + ["end"]


async def test_nodes_outside_of_loops_do_not_count_as_iterations():
    names = [f"n{number}" for number in range(60)]
    builder = graph(list(itertools.pairwise(names)), entry="n0", ends=["n59"])
    assert await ran(builder) == names


async def test_a_loop_that_does_not_end_is_an_err_that_names_the_node():
    builder = graph(
        [("a", "b"), ("b", "a", lambda s: True), ("b", "c", lambda s: False)],
        ends=["c"],
        config=GraphConfig(max_iterations=6),
    )
    error = (await builder.build().execute("x")).unwrap_err()
    assert isinstance(error, CycleDetectedError)
    assert (error.iterations, error.node) == (6, "a")
    assert "GraphConfig.max_iterations" in str(error)


async def test_a_fan_out_at_run_time_runs_the_target_for_each_piece():
    def split(state):
        return {"words": state["input"].split()}

    def work(state):
        return {"lengths": [len(state["word"])]}

    builder = (
        WorkflowBuilder("map")
        .add_node("split", split)
        .add_node("work", work, writes={"lengths"})
        .add_node("sum", lambda state: sum(state["lengths"]))
        .add_edge("split", "work", each=lambda s: [{"word": word} for word in s["words"]])
        .add_edge("work", "sum")
        .reduce("lengths", "append")
        .set_entry("split")
        .set_terminal("sum")
    )
    engine = builder.build()
    result = (await engine.execute("a bb ccc")).unwrap()
    assert result.final_state["lengths"] == [1, 2, 3]
    assert result.output == 6
    assert "word" not in result.final_state
    # No piece at all: the join runs, with nothing to sum up.
    nothing = (await engine.execute("")).unwrap()
    assert [result.node_name for result in nothing.node_results] == ["split", "sum"]
    assert (nothing.final_state["lengths"], nothing.output) == ([], 0)


def spread(*, pieces, writes=None, condition=None):
    """a → b for each piece → c → d, beside a → e → c."""
    return (
        WorkflowBuilder("spread")
        .add_node("a", lambda state: {"begun": True})
        .add_node("b", lambda state: {"found": [state["n"]], "by": {state["n"]: 1}}, writes=writes)
        .add_node("c", lambda state: {"output": [state.get("found"), state.get("by")]})
        .add_node("d", lambda state: {"after": state["output"]})
        .add_node("e", lambda state: {"beside": True})
        .add_edge("a", "b", each=lambda state: [{"n": n} for n in range(pieces)])
        .add_edge("b", "c", condition=condition)
        .add_edge("a", "e")
        .add_edge("e", "c")
        .add_edge("c", "d")
        .reduce("found", "append")
        .reduce("by", "merge")
        .reduce("other", "append")
        .set_entry("a")
        .set_terminal("d")
        .build()
    )


async def test_a_join_behind_no_piece_waits_for_the_other_branches_and_runs_once():
    result = (await spread(pieces=0).execute("x")).unwrap()
    assert [one.node_name for one in result.node_results] == ["a", "e", "c", "d"]
    assert result.final_state["after"] == [[], {}]
    assert result.final_state["other"] == []
    only = (await spread(pieces=0, writes={"found"}).execute("x")).unwrap()
    assert only.final_state["after"] == [[], None]
    assert (await spread(pieces=2).execute("x")).unwrap().final_state["after"] == [
        [0, 1],
        {0: 1, 1: 1},
    ]


async def test_conditions_behind_no_piece_are_asked_with_the_state_as_it_is():
    engine = spread(pieces=0, condition=lambda state: state["found"] == [])
    result = (await engine.execute("x")).unwrap()
    assert [one.node_name for one in result.node_results] == ["a", "e", "c", "d"]


async def test_a_node_that_hands_out_to_itself_ends_without_pieces():
    builder = (
        WorkflowBuilder("self")
        .add_node("a", lambda state: {"turns": [1]})
        .add_node("end", lambda state: {"output": len(state["turns"])})
        .add_edge("a", "a", each=lambda s: [{"x": 1}] if len(s["turns"]) < 3 else [])
        .add_edge("a", "end")
        .reduce("turns", "append")
        .set_entry("a")
        .set_terminal("end")
    )
    assert (await builder.build().execute("x")).unwrap().output == 3


async def test_a_terminal_node_ends_its_way_and_other_branches_finish():
    edges = [("a", "b"), ("a", "c"), ("c", "d"), ("b", "never")]
    result = (await graph(edges, ends=["b", "d"]).build().execute("x")).unwrap()
    names = {node.node_name for node in result.node_results}
    assert names == {"a", "b", "c", "d"}
    assert result.terminated_at == "d"


async def test_a_terminal_node_with_a_condition_ends_only_when_it_holds():
    def count(state):
        return {"n": state.get("n", 0) + 1}

    builder = graph([("a", "b"), ("b", "a")], a=count)
    builder._terminals.clear()
    builder.set_terminal("b", condition=lambda s: s["n"] == 3)
    assert await ran(builder) == ["a", "b"] * 3


async def test_undeclared_writes_that_collide_are_an_err_that_names_key_and_nodes():
    def same(state):
        return {"same": object()}

    builder = WorkflowBuilder("g").add_node("a", lambda s: None)
    for name in "bc":
        builder.add_node(name, same).add_edge("a", name).set_terminal(name)
    error = (await builder.set_entry("a").build().execute("x")).unwrap_err()
    assert isinstance(error, StateConflictError)
    assert (error.key, error.nodes) == ("same", ("b", "c"))
    assert 'reduce("same"' in str(error)
    assert "same" not in error.state


async def test_two_runs_at_once_do_not_see_each_other():
    engine = graph([("a", "b")], a=lambda s: {"mine": s["input"]}).build()
    results = []

    async def run(message):
        results.append((await engine.execute(message)).unwrap().final_state["mine"])

    async with anyio.create_task_group() as group:
        for message in "xyz":
            group.start_soon(run, message)
    assert sorted(results) == ["x", "y", "z"]


def test_is_active_is_another_name_for_the_condition():
    edge = WorkflowEdge("a", "b", is_active=lambda s: s["go"])
    assert edge.is_active({"go": 1}) is True
    assert edge.is_active({"go": 0}) is False
    assert edge.is_active({}) is False  # not there yet
    assert WorkflowEdge("a", "b").is_active({}) is True
    assert WorkflowEdge("a", "b", lambda s: s + 1).is_active({}) is False
    assert edge == WorkflowEdge("a", "b")
    assert hash(edge) == hash(WorkflowEdge("a", "b"))
    with pytest.raises(TypeError, match="give one of them"):
        WorkflowEdge("a", "b", lambda s: True, is_active=lambda s: True)
    with pytest.raises(AttributeError):
        edge.label = "x"


async def test_other_errors_of_a_terminal_condition_fail_the_run_and_name_the_node():
    def broken(state):
        raise RuntimeError("no")

    builder = graph([("a", "b")]).set_terminal("a", condition=broken)
    error = (await builder.build().execute("x")).unwrap_err()
    assert error.node == "a"
    assert isinstance(error.cause, RuntimeError)


async def test_other_errors_of_a_condition_fail_the_run_and_name_the_node():
    def broken(state):
        raise RuntimeError("no")

    error = (await graph([("a", "b", broken)]).build().execute("x")).unwrap_err()
    assert error.node == "a"
    assert isinstance(error.cause, RuntimeError)
    assert "the edge to 'b'" in str(error)
