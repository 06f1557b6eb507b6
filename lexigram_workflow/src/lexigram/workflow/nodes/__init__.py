"""The node types that come with the engine."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.workflow.nodes.agent_node import AgentNode
    from lexigram.workflow.nodes.function_node import FunctionNode
    from lexigram.workflow.nodes.gate_node import GateNode
    from lexigram.workflow.nodes.human_node import HumanNode
    from lexigram.workflow.nodes.llm_node import LLMNode
    from lexigram.workflow.nodes.pipeline_node import PipelineNode
    from lexigram.workflow.nodes.subworkflow_node import SubworkflowNode
    from lexigram.workflow.nodes.tool_node import ToolNode
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.workflow.nodes.agent_node": ["AgentNode"],
            "lexigram.workflow.nodes.function_node": ["FunctionNode"],
            "lexigram.workflow.nodes.gate_node": ["GateNode"],
            "lexigram.workflow.nodes.human_node": ["HumanNode"],
            "lexigram.workflow.nodes.llm_node": ["LLMNode"],
            "lexigram.workflow.nodes.pipeline_node": ["PipelineNode"],
            "lexigram.workflow.nodes.subworkflow_node": ["SubworkflowNode"],
            "lexigram.workflow.nodes.tool_node": ["ToolNode"],
        },
    )

__all__ = [
    "AgentNode",
    "FunctionNode",
    "GateNode",
    "HumanNode",
    "LLMNode",
    "PipelineNode",
    "SubworkflowNode",
    "ToolNode",
]
