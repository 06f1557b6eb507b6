"""How a run went, node by node or step by step."""

from __future__ import annotations

from typing import Any

from lexigram.workflow.pipeline.context import PipelineContext, StepStatus
from lexigram.workflow.types import GraphResult, NodeResult


class ExecutionHistory:
    """A result as data and as text: of a graph, or the context of a pipeline."""

    def __init__(self, result: GraphResult | PipelineContext) -> None:
        if isinstance(result, PipelineContext):
            self._nodes = _steps(result)
            self._iterations = len(self._nodes)
            self._duration = (result.duration or 0.0) * 1000
            self._ended_at = self._nodes[-1].node_name if self._nodes else None
        else:
            self._nodes = list(result.node_results)
            self._iterations = result.iterations
            self._duration = result.duration_ms
            self._ended_at = result.terminated_at

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "iterations": self._iterations,
            "duration_ms": self._duration,
            "terminated_at": self._ended_at,
            "nodes": [
                {
                    "node": node.node_name,
                    "succeeded": node.succeeded,
                    "duration_ms": node.duration_ms,
                    "skipped": node.skipped,
                    "output_keys": sorted(map(str, node.output)),
                    "error": node.error,
                }
                for node in self._nodes
            ],
        }

    def as_text(self) -> str:
        """For people: one line for each."""
        head = f"{self._iterations} runs of nodes in {self._duration:.1f} ms"
        ended = f", ended at {self._ended_at}" if self._ended_at else ""
        return "\n".join([head + ended, *map(_line, self._nodes)])

    def failed_nodes(self) -> list[str]:
        """Those that failed."""
        return [node.node_name for node in self._nodes if not node.succeeded]

    def succeeded_nodes(self) -> list[str]:
        """Those that did not fail."""
        return [node.node_name for node in self._nodes if node.succeeded]

    def total_node_time_ms(self) -> float:
        """The time of all of them together; more than the run took when some ran at once."""
        return sum(node.duration_ms for node in self._nodes)

    def __repr__(self) -> str:
        return f"<ExecutionHistory {len(self._nodes)} nodes, {len(self.failed_nodes())} failed>"


def _line(node: NodeResult) -> str:
    how = f"failed: {node.error}" if node.error else "skipped" if node.skipped else "done"
    return f"  {node.node_name}: {how} ({node.duration_ms:.1f} ms)"


def _steps(context: PipelineContext) -> list[NodeResult]:
    return [
        NodeResult(
            name,
            {name: done.result} if done.result is not None else {},
            (done.duration or 0.0) * 1000,
            None if done.error is None else str(done.error),
            done.status is StepStatus.SKIPPED,
        )
        for name, done in context.executions.items()
    ]
