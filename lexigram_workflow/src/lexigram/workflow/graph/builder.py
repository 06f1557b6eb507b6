"""Put a graph together, check it, get an engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Self

from lexigram.contracts.ai import AgentExecutorProtocol, LLMClientProtocol, ToolProtocol
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.workflow.checkpoints import CheckpointStoreProtocol
from lexigram.contracts.workflow.protocols import WorkflowNodeProtocol
from lexigram.hooks import HookRegistry
from lexigram.workflow.config import GraphConfig
from lexigram.workflow.errors import GraphProblem, GraphValidationError
from lexigram.workflow.graph import _plan as plan
from lexigram.workflow.graph._reducers import Reducer, reducer_of
from lexigram.workflow.graph.edge import Condition, Each, WorkflowEdge
from lexigram.workflow.graph.engine import WorkflowEngine
from lexigram.workflow.nodes.agent_node import AgentNode
from lexigram.workflow.nodes.function_node import FunctionNode, Services
from lexigram.workflow.nodes.gate_node import GateNode
from lexigram.workflow.nodes.human_node import HumanNode
from lexigram.workflow.nodes.llm_node import LLMNode
from lexigram.workflow.nodes.pipeline_node import PipelineNode
from lexigram.workflow.nodes.subworkflow_node import SubworkflowNode
from lexigram.workflow.nodes.tool_node import ToolNode
from lexigram.workflow.pipeline.pipeline import Pipeline


class WorkflowBuilder:
    """Nodes, edges, reducers; every method returns the builder, ``build()`` the engine."""

    def __init__(self, name: str, config: GraphConfig | None = None, version: int = 1) -> None:
        self._name = name
        self._config = config
        self._version = version
        self._nodes: dict[str, Any] = {}
        self._edges: list[WorkflowEdge] = []
        self._reducers: dict[str, Reducer] = {}
        self._entry: str | None = None
        self._terminals: dict[str, Condition | None] = {}

    @property
    def name(self) -> str:
        """What the graph will be called."""
        return self._name

    def add_node(
        self,
        name: str,
        node: WorkflowNodeProtocol | Callable[..., Any] | Pipeline | None = None,
        *,
        agent: Any = None,
        tool: ToolProtocol | None = None,
        llm: LLMClientProtocol | None = None,
        prompt: str = "",
        human_prompt: str = "",
        subworkflow: WorkflowEngine | None = None,
        executor: AgentExecutorProtocol | None = None,
        input_key: str = "input",
        output_key: str = "output",
        writes: Collection[str] | None = None,
    ) -> Self:
        """Add a node: an object, a function, a pipeline, or the parts of one of the known types.

        ``writes`` names the keys a function or object may change. Raises GraphValidationError,
        a ValueError, for a name that is taken and for no kind of node at all.
        """
        if name in self._nodes:
            raise _build_error(f"there are two nodes {name!r}", "give one of them another name")
        made: Any
        if isinstance(node, Pipeline):
            made = PipelineNode(name, pipeline=node, output_key=output_key)
        elif node is not None:
            made = node if hasattr(node, "execute") else self._function(name, node, output_key)
        elif agent is not None:
            keys = {"input_key": input_key, "output_key": output_key}
            made = AgentNode(name, agent=agent, executor=executor, **keys)
        elif tool is not None:
            made = ToolNode(name, tool=tool, input_key=input_key, output_key=output_key)
        elif llm is not None:
            template = prompt or f"{{{input_key}}}"
            made = LLMNode(name, llm=llm, prompt_template=template, output_key=output_key)
        elif human_prompt:
            made = HumanNode(name, prompt=human_prompt, output_key=output_key)
        elif subworkflow is not None:
            keys = {"input_key": input_key, "output_key": output_key}
            made = SubworkflowNode(name, workflow=subworkflow, **keys)
        else:
            raise _build_error(
                f"node {name!r} has no kind",
                "give node, agent, tool, llm, human_prompt or subworkflow",
            )
        if writes is not None:
            made.writes = frozenset(writes)
        self._nodes[name] = made
        return self

    def add_gate(self, name: str, routes: Mapping[str, Condition]) -> Self:
        """Add a node that parts ways: an edge to each target whose condition holds."""
        self.add_node(name, GateNode(name, routes=routes))
        for target, condition in routes.items():
            self.add_edge(name, target, condition=condition)
        return self

    def add_edge(
        self,
        source: str,
        target: str,
        *,
        condition: Condition | None = None,
        label: str = "",
        is_active: Condition | None = None,
        each: Each | None = None,
    ) -> Self:
        """Connect two nodes, which may be added later.

        ``each`` returns one mapping per piece of work: the target runs once for each, with its
        keys laid over the state.
        """
        edge = WorkflowEdge(source, target, condition, label, is_active=is_active, each=each)
        self._edges.append(edge)
        return self

    def reduce(self, key: str, reducer: str | Reducer) -> Self:
        """Say what a write to a key does: "append", "merge", "max", or a function
        ``(value so far, written) -> value``. Without one a write replaces the value.
        """
        self._reducers[key] = reducer_of(key, reducer)
        return self

    def set_entry(self, node: str) -> Self:
        """Where runs begin."""
        self._entry = node
        return self

    def set_terminal(self, node: str, *, condition: Condition | None = None) -> Self:
        """Where a way ends, always or when the condition holds; its edges are not taken then."""
        self._terminals[node] = condition
        return self

    def configure(self, config: GraphConfig) -> Self:
        """Replace the settings."""
        self._config = config
        return self

    def get_node(self, node_id: str) -> WorkflowNodeProtocol:
        """The node; KeyError when unknown."""
        node: WorkflowNodeProtocol = self._nodes[node_id]
        return node

    def topological_order(self) -> list[str]:
        """The nodes that the entry leads to, so that edges point forward; ValueError for a loop."""
        if self._entry is None or self._entry not in self._nodes:
            raise _build_error("there is no entry node", "say where it begins with set_entry(name)")
        names = list(self._nodes)
        numbers = {name: number for number, name in enumerate(names)}
        targets: list[list[int]] = [[] for _ in names]
        for edge in self._edges:
            targets[numbers[edge.source]].append(numbers[edge.target])
        start = numbers[self._entry]
        if plan.back_edges(targets, start):
            raise _build_error("the graph has a loop, so it has no order", "look at its diagram")
        return [names[number] for number in plan.topological(targets, start)]

    def build(
        self,
        *,
        checkpoints: CheckpointStoreProtocol | None = None,
        container: Services | None = None,
        events: EventBusProtocol | None = None,
        hooks: HookRegistry | None = None,
    ) -> WorkflowEngine:
        """The engine; GraphValidationError with every problem and a fix for each.

        ``checkpoints`` keeps every step of every run. ``container`` fills what functions ask
        for besides the state. ``events`` and ``hooks`` get the starts and ends of runs.
        """
        engine = WorkflowEngine(
            self._name,
            self._nodes,
            self._edges,
            self._entry,
            self._terminals,
            self._config,
            self._version,
            reducers=self._reducers,
            checkpoints=checkpoints,
            container=container,
            events=events,
            hooks=hooks,
        )
        engine.validate()
        return engine

    def _function(self, name: str, function: Any, output_key: str) -> FunctionNode:
        if not callable(function):
            raise _build_error(
                f"node {name!r} is {type(function).__name__}, which cannot run",
                "give an object with execute(state), or a function of the state",
            )
        return FunctionNode(name, function, output_key=output_key)


def _build_error(text: str, fix: str) -> GraphValidationError:
    return GraphValidationError("invalid graph:", problems=[GraphProblem(text, fix)])
