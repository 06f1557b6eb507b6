"""The six node types, functions with services, and subworkflows."""

import pytest

from lexigram.contracts.ai import AgentReply, AIError, LLMError, LLMMessage, LLMResponse
from lexigram.contracts.core.result import Err, Ok
from lexigram.di import Module, module
from lexigram.di.provider import Provider
from lexigram.testing import boot
from lexigram.workflow.errors import GraphValidationError, HumanInputRequiredError
from lexigram.workflow.graph import AbstractWorkflowNode, NodeType, WorkflowBuilder
from lexigram.workflow.nodes import (
    AgentNode,
    GateNode,
    HumanNode,
    LLMNode,
    SubworkflowNode,
    ToolNode,
)

pytestmark = pytest.mark.anyio


class Agent:
    def __init__(self, answer):
        self.answer = answer

    async def run(self, message):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if not isinstance(self.answer, str) else f"{self.answer} {message}"


class Executor:
    def __init__(self, answer):
        self.answer = answer

    async def execute(self, agent, message):
        return self.answer


class Model:
    def __init__(self, answer=None):
        self.answer = answer or Ok(LLMResponse("said"))
        self.calls = []

    async def complete(self, messages, **settings):
        self.calls.append((messages, settings))
        return self.answer


class Tool:
    name = "tool"
    description = "a tool"

    def __init__(self, answer):
        self.answer = answer
        self.arguments = None

    async def execute(self, arguments):
        self.arguments = arguments
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def alone(**kind):
    return WorkflowBuilder("g").add_node("a", **kind).set_entry("a").set_terminal("a").build()


async def test_an_agent_answers_by_itself_or_by_its_executor():
    assert (await AgentNode("a", agent=Agent("hi")).execute({"input": "you"})) == {
        "output": "hi you"
    }
    node = AgentNode(
        "a", agent=Agent(""), executor=Executor(Ok(AgentReply("by"))), output_key="reply"
    )
    assert await node.execute({"input": "x"}) == {"reply": "by"}
    assert node.node_type is NodeType.AGENT


async def test_a_model_gets_the_filled_prompt_and_only_the_settings_that_were_given():
    model = Model()
    node = LLMNode(
        "a",
        llm=model,
        prompt_template="{input} {unknown} {x}",
        system_prompt="be {x}",
        temperature=0.5,
    )
    assert await node.execute({"input": "hi", "x": 3}) == {"output": "said"}
    assert model.calls == [
        ([LLMMessage("system", "be 3"), LLMMessage("user", "hi {unknown} 3")], {"temperature": 0.5})
    ]
    assert (await alone(llm=model, prompt="say {input}").execute("x")).unwrap().output == "said"
    assert model.calls[-1][0] == [LLMMessage("user", "say x")]


async def test_a_tool_gets_the_input_and_the_extra_keys_that_are_there():
    tool = Tool({"found": 1})
    node = ToolNode("a", tool=tool, input_key="q", extra_keys=["limit", "missing"])
    assert await node.execute({"q": "tea", "limit": 3}) == {"output": {"found": 1}}
    assert tool.arguments == {"limit": 3, "input": "tea"}


async def test_a_gate_changes_nothing_and_its_routes_decide():
    builder = WorkflowBuilder("g").add_gate(
        "gate", {"low": lambda s: s["input"] < 5, "high": lambda s: s["input"] >= 5}
    )
    for name in ("low", "high"):
        builder.add_node(name, lambda s, n=name: n).set_terminal(name)
    engine = builder.set_entry("gate").build()
    assert (await engine.execute(3)).unwrap().output == "low"
    assert (await engine.execute(7)).unwrap().output == "high"
    assert await GateNode("g").execute({}) == {}


@pytest.mark.parametrize(
    "kind",
    [
        {"agent": Agent(RuntimeError("agent down"))},
        {"agent": Agent(Err(AIError("agent down")))},
        {"agent": Agent(""), "executor": Executor(Err(AIError("agent down")))},
        {"llm": Model(Err(LLMError("model down")))},
        {"tool": Tool(RuntimeError("tool down"))},
        {"tool": Tool(Err("tool down"))},
    ],
)
async def test_a_failure_of_any_node_type_is_an_err_and_never_an_output(kind):
    error = (await alone(**kind).execute("x")).unwrap_err()
    assert error.node == "a"
    assert "down" in str(error.cause)
    assert error.state["output"] == ""


async def test_a_failing_inner_graph_is_an_err_that_leads_to_its_cause():
    def broken(state):
        raise KeyError("lost")

    inner = WorkflowBuilder("in").add_node("i", broken).set_entry("i").set_terminal("i").build()
    error = (await alone(subworkflow=inner).execute("x")).unwrap_err()
    assert error.node == "a"
    assert error.cause.node == "i"
    assert isinstance(error.cause.cause, KeyError)


async def test_an_inner_graph_has_a_state_and_a_history_of_its_own():
    inner = (
        WorkflowBuilder("in")
        .add_node("i", lambda s: {"secret": 1, "output": f"{s['input']}{s['shared']}"})
        .add_node("i2", lambda s: None)
        .add_edge("i", "i2")
        .set_entry("i")
        .set_terminal("i2")
        .build()
    )
    outer = (
        WorkflowBuilder("out")
        .add_node("first", lambda s: {"shared": "!"})
        .add_node("sub", subworkflow=inner, output_key="answer")
        .add_edge("first", "sub")
        .set_entry("first")
        .set_terminal("sub")
        .build()
    )
    result = (await outer.execute("hi")).unwrap()
    assert result.final_state["answer"] == "hi!"
    assert "secret" not in result.final_state
    assert result.iterations == 2
    assert [entry["node"] for entry in result.final_state["_history"]] == ["first", "sub"]
    assert SubworkflowNode("s", workflow=inner).node_type is NodeType.SUBWORKFLOW


async def test_a_human_node_alone_asks_or_takes_the_answer_from_the_state():
    node = HumanNode("h", prompt="ok, {name}? {missing}")
    with pytest.raises(HumanInputRequiredError) as caught:
        await node.execute({"name": "Ada"})
    assert caught.value.prompt == "ok, Ada? {missing}"
    assert caught.value.node == "h"
    assert await node.execute({"human_response": "yes"}) == {"human_response": "yes"}
    with pytest.raises(HumanInputRequiredError, match="from the state"):
        await HumanNode("h", input_key="q").execute({"q": "from the state"})
    other = HumanNode("h", output_key="out", resume_key="given")
    assert await other.execute({"given": "x"}) == {"out": "x"}


async def test_functions_may_return_a_mapping_nothing_or_a_value():
    async def later(state):
        return {"n": 1}

    builder = WorkflowBuilder("g").add_node("a", later).add_node("b", lambda s: None)
    builder.add_node("c", lambda s: s["n"] + 1, output_key="m")
    builder.add_edge("a", "b").add_edge("b", "c").set_entry("a").set_terminal("c")
    state = (await builder.build().execute("x")).unwrap().final_state
    assert (state["n"], state["m"]) == (1, 2)


async def test_a_custom_node_keeps_its_name_type_and_declared_writes():
    class Double(AbstractWorkflowNode):
        writes = frozenset({"n"})

        async def execute(self, state):
            return {"n": state["n"] * 2}

    assert (Double("d").name, Double("d").node_type) == ("d", NodeType.CUSTOM)
    builder = WorkflowBuilder("g").add_node("d", Double("d")).set_entry("d").set_terminal("d")
    assert (await builder.build().execute("x", {"n": 4})).unwrap().final_state["n"] == 8


class Prices:
    def of(self, thing):
        return len(thing)


class ShopProvider(Provider):
    name = "shop"

    async def register(self, container):
        container.singleton(Prices)


@module(providers=[ShopProvider], exports=[Prices])
class Shop(Module):
    pass


class Unbound:
    pass


async def test_a_function_takes_its_services_from_the_container():
    async def price(state, prices: Prices):
        return {"output": prices.of(state["input"])}

    builder = WorkflowBuilder("g").add_node("a", price).set_entry("a").set_terminal("a")
    async with boot(Shop) as app:
        engine = builder.build(container=app.container)
        assert (await engine.execute("tea")).unwrap().output == 3


async def test_a_service_nobody_binds_is_a_problem_of_the_definition():
    def price(state, prices: Unbound):
        return None

    builder = WorkflowBuilder("g").add_node("a", price).set_entry("a").set_terminal("a")
    async with boot(Shop) as app:
        with pytest.raises(GraphValidationError, match="(?s)node 'a'.*Unbound"):
            builder.build(container=app.container)
