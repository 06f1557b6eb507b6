"""Each kind of bad definition is refused when it is built, word for word, with what to do."""

import pytest

from lexigram.contracts.core.result import Ok
from lexigram.workflow.errors import GraphValidationError, PipelineValidationError
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.pipeline import FunctionStep, Pipeline
from lexigram.workflow.saga import AbstractSaga, SagaDefinitionError, SagaStep


def work(state):
    return None


def graph(*names, **writes):
    made = WorkflowBuilder("shop")
    for name in names:
        made.add_node(name, work, writes=writes.get(name))
    return made.set_entry(names[0]).set_terminal(names[-1])


def refused(make, kind=GraphValidationError):
    with pytest.raises(kind) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    return str(caught.value).split("] ", 1)[1]


def test_an_unknown_node():
    made = graph("a", "b").add_edge("a", "b").add_edge("b", "pay")
    assert refused(made.build) == (
        "graph 'shop' has 1 problem:\n"
        "    the edge b → pay names the unknown node 'pay'\n"
        "      → add it; the nodes are 'a', 'b'"
    )


def test_no_entry():
    made = WorkflowBuilder("shop").add_node("a", work).set_terminal("a")
    assert refused(made.build) == (
        "graph 'shop' has 1 problem:\n"
        "    there is no entry node\n"
        "      → say where it begins with set_entry(name)"
    )


def test_an_unreachable_node():
    made = graph("a", "b", "c").add_edge("a", "c")
    assert refused(made.build) == (
        "graph 'shop' has 1 problem:\n"
        "    no way leads from the entry 'a' to node 'b'\n"
        '      → add an edge to it, such as add_edge("a", "b"), or remove it'
    )


def test_a_cycle_without_bound():
    made = graph("a", "b", "c", "d").add_edge("a", "b").add_edge("b", "c").add_edge("c", "b")
    assert refused(made.add_edge("a", "d").build) == (
        "graph 'shop' has 1 problem:\n"
        "    the cycle through b, c has no bound: all its edges are always taken\n"
        "      → give one of its edges a condition, or make one of its nodes terminal"
    )


def test_a_missing_reducer():
    made = graph("a", "b", "c", "d", b={"bill"}, c={"bill"})
    made.add_edge("a", "b").add_edge("a", "c").add_edge("b", "d").add_edge("c", "d")
    assert refused(made.build) == (
        "graph 'shop' has 1 problem:\n"
        "    nodes 'b' and 'c' may run side by side after 'a', and both write 'bill'\n"
        "      → give one another output_key, or say what two writes mean: "
        'reduce("bill", "append"), merge, max or yours'
    )


def test_two_nodes_of_one_name():
    assert refused(lambda: WorkflowBuilder("shop").add_node("a", work).add_node("a", work)) == (
        "invalid graph:\n    there are two nodes 'a'\n      → give one of them another name"
    )


def test_a_duplicate_step():
    steps = [FunctionStep("a", work), FunctionStep("a", work)]
    assert refused(lambda: Pipeline("shop", steps), PipelineValidationError) == (
        "pipeline 'shop' has 1 problem:\n"
        "    2 steps are called 'a'\n"
        "      → give each another name; steps inside of others count too"
    )


def test_an_unknown_dependency():
    steps = [FunctionStep("a", work), FunctionStep("b", work, ["pay"])]
    assert refused(lambda: Pipeline("shop", steps), PipelineValidationError) == (
        "pipeline 'shop' has 1 problem:\n"
        "    step 'b' depends on 'pay', which is unknown\n"
        "      → add it or correct the name; the other steps are 'a'"
    )


def test_steps_that_wait_for_each_other():
    steps = [FunctionStep("a", work, ["b"]), FunctionStep("b", work, ["a"])]
    assert refused(lambda: Pipeline("shop", steps), PipelineValidationError) == (
        "pipeline 'shop' has 1 problem:\n"
        "    the steps a → b → a wait for each other\n"
        "      → take one of these dependencies away"
    )


def test_a_duplicate_step_of_a_saga():
    async def act():
        return Ok(None)

    class Order(AbstractSaga):
        def get_id(self):
            return "o-1"

    saga = Order()
    saga.add_step(SagaStep("pay", act))
    assert refused(lambda: saga.add_step(SagaStep("pay", act)), SagaDefinitionError) == (
        "step 'pay' of Order: there is a step of this name; give each its own"
    )


def test_problems_of_every_kind_are_told_together():
    made = graph("a", "b", "c", "d", "lost", b={"bill"}, c={"bill"}).add_edge("d", "pay")
    made.add_edge("a", "b").add_edge("a", "c").add_edge("b", "d").add_edge("c", "d")
    made.add_edge("d", "a")
    with pytest.raises(GraphValidationError) as caught:
        made.build()
    assert [problem.text for problem in caught.value.problems] == [
        "the edge d → pay names the unknown node 'pay'",
        "no way leads from the entry 'a' to node 'lost'",
        "the cycle through a, b, c, d has no bound: all its edges are always taken",
        "nodes 'b' and 'c' may run side by side after 'a', and both write 'bill'",
    ]
    assert all(problem.fix for problem in caught.value.problems)
