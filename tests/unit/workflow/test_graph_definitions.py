"""Bad definitions are refused at build, with every problem and a fix for each."""

import pytest

from lexigram.contracts.workflow import ExecutionProtocol, WorkflowGraphProtocol
from lexigram.workflow.config import GraphConfig
from lexigram.workflow.errors import GraphValidationError
from lexigram.workflow.graph import WorkflowBuilder, WorkflowEngine
from lexigram.workflow.nodes import FunctionNode, HumanNode


def nothing(state):
    return None


def builder(names="abc", **writes):
    made = WorkflowBuilder("shop").set_entry("a").set_terminal(names[-1])
    for name in names:
        made.add_node(name, nothing, writes=writes.get(name))
    return made


def problems(made):
    with pytest.raises(GraphValidationError) as caught:
        made.build()
    assert all(problem.fix for problem in caught.value.problems)
    return [problem.text for problem in caught.value.problems]


def test_all_problems_are_told_at_once_with_a_fix_each():
    made = WorkflowBuilder("shop").add_node("a", nothing).add_edge("a", "b").add_edge("x", "a")
    with pytest.raises(GraphValidationError) as caught:
        made.build()
    text = str(caught.value)
    assert text == (
        "[LEX_ERR_WF_015] graph 'shop' has 4 problems:\n"
        "    there is no entry node\n"
        "      → say where it begins with set_entry(name)\n"
        "    there is no terminal node\n"
        "      → say where it ends with set_terminal(name)\n"
        "    the edge a → b names the unknown node 'b'\n"
        "      → add it; the nodes are 'a'\n"
        "    the edge x → a names the unknown node 'x'\n"
        "      → add it; the nodes are 'a'"
    )


def test_an_unknown_entry_and_terminal_are_refused():
    made = WorkflowBuilder("shop").add_node("a", nothing).set_entry("x").set_terminal("y")
    assert problems(made) == ["the entry node 'x' is unknown", "the terminal node 'y' is unknown"]


def test_a_node_that_nothing_leads_to_is_refused():
    made = builder().add_edge("a", "c")
    assert problems(made) == ["no way leads from the entry 'a' to node 'b'"]


def test_a_cycle_that_cannot_end_is_refused():
    made = builder("abcd").add_edge("a", "b").add_edge("b", "c").add_edge("c", "b")
    made.add_edge("a", "d")
    assert problems(made) == ["the cycle through b, c has no bound: all its edges are always taken"]


def test_a_cycle_with_a_condition_or_a_terminal_node_is_fine():
    builder("ab").add_edge("a", "b").add_edge("b", "a", condition=lambda s: True).build()
    builder("ab").add_edge("a", "b").add_edge("b", "a").build()


def test_an_edge_added_twice_is_refused():
    made = builder("ab").add_edge("a", "b").add_edge("a", "b")
    assert problems(made) == ["the edge a → b was added 2 times"]


def test_an_async_condition_is_refused():
    async def later(state):
        return False

    made = builder("ab").add_edge("a", "b", condition=later).set_terminal("b", condition=later)
    assert problems(made) == [
        "the condition of a → b is an async function",
        "the condition of terminal 'b' is an async function",
    ]


@pytest.mark.parametrize("length", [0, 2])
def test_parallel_nodes_that_write_one_key_need_a_reducer(length):
    made = builder("abcj", b={"k"}, c={"k"}).add_edge("a", "b").add_edge("c", "j")
    last = "a"
    for number in range(length):  # branches of different length may still meet
        made.add_node(f"n{number}", nothing).add_edge(last, f"n{number}")
        last = f"n{number}"
    made.add_edge(last, "c").add_edge("b", "j")
    assert problems(made) == [
        "nodes 'b' and 'c' may run side by side after 'a', and both write 'k'"
    ]
    made.reduce("k", "append").build()


def test_nodes_that_wait_for_each_other_may_write_one_key():
    made = builder("abc", a={"k"}, b={"k"}, c={"k"})
    made.add_edge("a", "b").add_edge("b", "c").add_edge("a", "c").build()


def test_ways_that_all_have_conditions_are_alternatives():
    made = builder("abcj", b={"k"}, c={"k"})
    made.add_edge("a", "b", condition=lambda s: True).add_edge("a", "c", condition=lambda s: True)
    made.add_edge("b", "j").add_edge("c", "j").build()


def test_a_conditional_way_beside_one_that_is_always_taken_is_parallel():
    made = builder("abcj", b={"k"}, c={"k"})
    made.add_edge("a", "b").add_edge("a", "c", condition=lambda s: True)
    made.add_edge("b", "j").add_edge("c", "j")
    assert problems(made) == [
        "nodes 'b' and 'c' may run side by side after 'a', and both write 'k'"
    ]


def test_one_by_one_needs_no_reducer():
    made = builder("abcj", b={"k"}, c={"k"}).configure(GraphConfig(parallel_branches=False))
    made.add_edge("a", "b").add_edge("a", "c").add_edge("b", "j").add_edge("c", "j").build()


def test_a_fan_out_at_run_time_needs_a_reducer_for_what_its_target_writes():
    made = builder("abc", b={"k"}).add_edge("b", "c")
    made.add_edge("a", "b", each=lambda s: [{}, {}])
    assert problems(made) == ["node 'b' runs once for each piece of a → b and writes 'k'"]
    made.reduce("k", "append").build()


def test_known_node_types_declare_their_output_key():
    made = WorkflowBuilder("shop").add_node("a", nothing).set_entry("a")
    for name in "bc":
        made.add_node(name, human_prompt="?").add_edge("a", name).set_terminal(name)
    assert problems(made) == [
        "nodes 'b' and 'c' may run side by side after 'a', and both write 'output'"
    ]


def test_a_name_that_is_taken_is_refused_at_once():
    with pytest.raises(ValueError, match="there are two nodes 'a'"):
        builder().add_node("a", nothing)


def test_a_node_without_a_kind_is_refused_at_once():
    with pytest.raises(ValueError, match="has no kind"):
        WorkflowBuilder("shop").add_node("a")
    with pytest.raises(ValueError, match="cannot run"):
        WorkflowBuilder("shop").add_node("a", 5)


def test_a_function_that_cannot_take_the_state_is_refused_at_once():
    with pytest.raises(Exception, match="first parameter cannot take the state"):
        WorkflowBuilder("shop").add_node("a", lambda: None)


def test_a_function_that_asks_for_services_needs_a_container():
    made = WorkflowBuilder("shop").set_entry("a").set_terminal("a")
    made.add_node("a", lambda state, mail, clock: None)
    assert problems(made) == ["node 'a' asks for mail, clock, and there is no container"]


def test_builder_and_engine_keep_their_contracts():
    made = builder().add_edge("a", "b").add_edge("b", "c")
    assert isinstance(made, WorkflowGraphProtocol)
    assert isinstance(made.build(), ExecutionProtocol)
    assert isinstance(made.get_node("a"), FunctionNode)
    assert made.topological_order() == ["a", "b", "c"]
    with pytest.raises(KeyError):
        made.get_node("x")
    made.add_edge("c", "a", condition=lambda s: False)
    with pytest.raises(ValueError, match="loop"):
        made.topological_order()


def test_an_engine_made_by_hand_is_validated_too():
    engine = WorkflowEngine("hand", {"a": HumanNode("a")}, [], "missing", {"a": None})
    with pytest.raises(GraphValidationError, match="'missing' is unknown"):
        engine.validate()
    assert WorkflowEngine("hand", {"a": HumanNode("a")}, [], "a", {"a": None}).version == 1


def test_one_builder_builds_many_engines():
    made = builder().add_edge("a", "b").add_edge("b", "c")
    assert made.build() is not made.build()
