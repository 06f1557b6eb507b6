"""State, reducers, and what nodes may and may not do with them."""

import pickle

import pytest

from lexigram.workflow.config import GraphConfig
from lexigram.workflow.errors import GraphValidationError, WorkflowStateError
from lexigram.workflow.graph import WorkflowBuilder, WorkflowState
from lexigram.workflow.graph.state import SharedState

pytestmark = pytest.mark.anyio


def single(function, **reducers):
    builder = WorkflowBuilder("g").add_node("a", function).set_entry("a").set_terminal("a")
    for key, reducer in reducers.items():
        builder.reduce(key, reducer)
    return builder.build()


async def final(engine, **options):
    return (await engine.execute("x", **options)).unwrap().final_state


def test_a_state_begins_with_its_known_keys():
    state = WorkflowState("hi", initial={"n": 1})
    assert state["input"] == "hi"
    assert state["output"] == ""
    assert (state.iteration, state.history) == (0, [])
    assert "n" in state
    assert state.get("missing", 7) == 7
    state["n"] = 2
    state.merge({"m": 3, "_iteration": 99})
    state.record("a", {"m": 3})
    assert state.as_dict()["m"] == 3
    assert (state.iteration, state.history) == (1, [{"node": "a", "output": {"m": 3}}])
    assert repr(state) == "WorkflowState(input, output, n, m)"
    state.as_dict()["n"] = 5
    assert state["n"] == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.__setitem__("x", 1),
        lambda s: s.update(x=1),
        lambda s: s.pop("input"),
        lambda s: s.popitem(),
        lambda s: s.clear(),
        lambda s: s.setdefault("x", 1),
        lambda s: s.__delitem__("input"),
        lambda s: s.__ior__({"x": 1}),
    ],
)
async def test_a_node_that_changes_the_state_in_place_is_told_to_return_the_change(change):
    error = (await single(change).execute("x")).unwrap_err()
    assert isinstance(error.cause, WorkflowStateError)
    assert "return what changes" in str(error.cause)
    assert error.state["input"] == "x"


async def test_a_node_may_do_anything_else_with_the_state():
    def node(state):
        own = state.copy()
        own["x"] = 1
        assert type(own) is dict
        assert dict(state) == {**state}
        assert pickle.loads(pickle.dumps(state)) == dict(state)
        return {"keys": sorted(key for key in state if key[0] != "_")}

    assert (await final(single(node)))["keys"] == ["input", "output"]


@pytest.mark.parametrize(
    ("reducer", "writes", "value"),
    [
        ("append", [["a"], "b", ("c", "d")], ["a", "b", "c", "d"]),
        ("merge", [{"a": 1}, {"b": 2}, {"a": 3}], {"a": 3, "b": 2}),
        ("max", [2, 5, 3], 5),
        (lambda so_far, written: so_far + written, [1, 2, 3], 6),
        (None, [1, 2, 3], 3),
    ],
)
async def test_reducers_say_what_a_write_does(reducer, writes, value):
    builder = WorkflowBuilder("g")
    for number, written in enumerate(writes):
        builder.add_node(f"n{number}", lambda s, w=written: {"key": w})
        if number:
            builder.add_edge(f"n{number - 1}", f"n{number}")
    if reducer is not None:
        builder.reduce("key", reducer)
    builder.set_entry("n0").set_terminal(f"n{len(writes) - 1}")
    assert (await final(builder.build()))["key"] == value


async def test_equal_small_numbers_are_reduced_too():
    def add(so_far, written):
        return so_far + written

    builder = WorkflowBuilder("g").reduce("n", add).add_node("a", lambda s: {"n": 1})
    for name in "bcd":
        builder.add_node(name, lambda s: {"n": 1}).add_edge("a", name).set_terminal(name)
    assert (await final(builder.set_entry("a").build()))["n"] == 4


async def test_returning_the_whole_state_does_not_add_lists_to_themselves():
    engine = single(lambda s: {**s, "n": 1}, messages="append")
    state = await final(engine, state={"messages": ["hi"]})
    assert (state["messages"], state["n"]) == (["hi"], 1)


async def test_the_output_may_have_a_reducer():
    engine = single(lambda s: {"output": 5}, output="max")
    assert (await engine.execute("x")).unwrap().output == 5


def test_an_unknown_reducer_is_refused_with_the_known_ones():
    with pytest.raises(GraphValidationError, match="'append', 'merge', 'max'"):
        WorkflowBuilder("g").reduce("key", "sum")


async def test_a_reducer_that_fails_is_an_err_and_changes_nothing():
    engine = single(lambda s: {"first": 1, "n": "text"}, n="max", first="max")
    error = (await engine.execute("x", state={"n": 3})).unwrap_err()
    assert error.node == "a"
    assert isinstance(error.cause, TypeError)
    assert error.state["n"] == 3
    assert "first" not in error.state


async def test_keys_of_the_engine_cannot_be_written():
    state = await final(single(lambda s: {"_iteration": 99, "n": 1}))
    assert (state["_iteration"], state["n"]) == (1, 1)


async def test_a_given_state_is_the_beginning_and_is_brought_up_to_date():
    state = WorkflowState("x", initial={"n": 1})
    engine = single(lambda s: {"n": s["n"] + 1, "output": s["input"]})
    result = (await engine.execute("x", state=state)).unwrap()
    assert result.final_state["n"] == state["n"] == 2
    assert state["output"] == "x"
    assert state.iteration == 1
    assert [entry["node"] for entry in state.history] == ["a"]


async def test_the_result_tells_what_ran():
    result = (await single(lambda s: {"output": "done"}).execute("x")).unwrap()
    assert result.output == "done"
    assert result.succeeded
    assert result.iterations == 1
    assert result.terminated_at == "a"
    (node,) = result.node_results
    assert (node.node_name, node.output, node.succeeded) == ("a", {"output": "done"}, True)
    assert result.final_state["_history"] == [{"node": "a", "output": {"output": "done"}}]


@pytest.mark.parametrize("wrong", [5, "text", [1]])
async def test_a_node_object_that_returns_no_mapping_is_an_err(wrong):
    class Wrong:
        name = "a"

        async def execute(self, state):
            return wrong

    builder = WorkflowBuilder("g").add_node("a", Wrong()).set_entry("a").set_terminal("a")
    error = (await builder.build().execute("x")).unwrap_err()
    assert "a node returns a mapping" in str(error)


async def test_a_graph_that_is_switched_off_does_not_run():
    ran = []
    builder = WorkflowBuilder("g", GraphConfig(enabled=False)).add_node("a", ran.append)
    error = (await builder.set_entry("a").set_terminal("a").build().execute("x")).unwrap_err()
    assert ran == []
    assert "workflow.graph.enabled" in str(error)


def test_settings_come_from_variables_and_are_checked():
    config = GraphConfig.from_env({"LEX_WORKFLOW__GRAPH__MAX_ITERATIONS": "7"})
    assert config.max_iterations == 7
    with pytest.raises(ValueError, match="max_iterations"):
        GraphConfig(max_iterations=0)


def test_the_shared_state_reads_like_a_dict():
    state = SharedState({"a": 1})
    assert state["a"] == 1
    assert state | {"b": 2} == {"a": 1, "b": 2}
