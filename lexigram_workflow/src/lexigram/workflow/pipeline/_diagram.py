"""The diagram of a pipeline: mermaid or DOT, plain or coloured by how the steps went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lexigram.diagram import Diagram, Edge, Line, Node, Shape
from lexigram.workflow.pipeline.base import PipelineStep
from lexigram.workflow.pipeline.context import StepExecutionResult
from lexigram.workflow.pipeline.steps import ConditionalStep, ParallelStep


def mermaid(
    steps: Sequence[PipelineStep],
    order: Sequence[PipelineStep] | None,
    outcomes: Mapping[str, StepExecutionResult] | None = None,
) -> str:
    """A flowchart from left to right."""
    return _diagram("", steps, order, outcomes).mermaid()


def dot(
    title: str,
    steps: Sequence[PipelineStep],
    order: Sequence[PipelineStep] | None,
    outcomes: Mapping[str, StepExecutionResult] | None = None,
) -> str:
    """A digraph from left to right."""
    return _diagram(title, steps, order, outcomes).dot()


def _diagram(
    title: str,
    steps: Sequence[PipelineStep],
    order: Sequence[PipelineStep] | None,
    outcomes: Mapping[str, StepExecutionResult] | None,
) -> Diagram:
    every, known = list(_every(steps)), outcomes or {}
    ids = {step.name: f"n{number}" for number, step in enumerate(every)}
    nodes = [
        Node(
            id=ids[step.name],
            label=step.name,
            shape=Shape.DIAMOND if isinstance(step, ConditionalStep) else Shape.BOX,
            status=known[step.name].status.value if step.name in known else None,
        )
        for step in every
    ]
    edges = [
        Edge(
            source=ids[source],
            target=ids[target],
            label=label,
            line=Line.DASHED if label else Line.SOLID,
        )
        for source, target, label in _edges(steps, order)
    ]
    return Diagram(name=title, nodes=nodes, edges=edges)


def _every(steps: Sequence[PipelineStep]) -> Iterator[PipelineStep]:
    for step in steps:
        yield step
        yield from _every(step.inner_steps)


def _edges(
    steps: Sequence[PipelineStep], order: Sequence[PipelineStep] | None
) -> Iterator[tuple[str, str, str]]:
    """From, to, label: dependencies, what comes next in an order, and what is inside of a step."""
    drawn: set[tuple[str, str]] = set()
    for step in steps:
        for name in step.dependencies:
            drawn.add((name, step.name))
            yield name, step.name, ""
    for one, other in zip(order or (), (order or ())[1:], strict=False):
        if (one.name, other.name) not in drawn:
            yield one.name, other.name, "then"
    for step in _every(steps):
        if isinstance(step, ConditionalStep):
            for label, inner in step.ways:
                yield step.name, inner.name, label
        elif isinstance(step, ParallelStep):
            for inner in step.inner_steps:
                yield step.name, inner.name, "at once"
