"""A pipeline as a picture: mermaid or DOT."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from lexigram.workflow.pipeline.base import PipelineStep
from lexigram.workflow.pipeline.context import StepExecutionResult, StepStatus
from lexigram.workflow.pipeline.steps import ConditionalStep, ParallelStep

_COLOURS = {
    StepStatus.COMPLETED: "#b7e1cd",
    StepStatus.RUNNING: "#a4c2f4",
    StepStatus.FAILED: "#f4b6b6",
    StepStatus.SKIPPED: "#eeeeee",
    StepStatus.PENDING: "#ffffff",
}

# (from, to, label)
Edge = tuple[str, str, str]


def mermaid(
    steps: Sequence[PipelineStep],
    order: Sequence[PipelineStep] | None,
    outcomes: Mapping[str, StepExecutionResult] | None = None,
) -> str:
    """A flowchart; names may hold anything, so boxes are numbered."""
    every = list(_every(steps))
    ids = {step.name: f"n{number}" for number, step in enumerate(every)}
    lines = ["flowchart LR"]
    for step in every:
        left, right = ("{", "}") if isinstance(step, ConditionalStep) else ("[", "]")
        name = step.name.replace('"', "#quot;").replace("\n", " ")
        lines.append(f'    {ids[step.name]}{left}"{name}"{right}')
    for source, target, label in _edges(steps, order):
        shown = f"|{label}|" if label else ""
        arrow = "-.->" if label else "-->"
        lines.append(f"    {ids[source]} {arrow}{shown} {ids[target]}")
    if outcomes is not None:
        used = {name: outcomes[name].status for name in ids if name in outcomes}
        kinds = sorted(set(used.values()))
        lines += [f"    classDef {status.value} fill:{_COLOURS[status]}" for status in kinds]
        lines += [f"    class {ids[name]} {status.value}" for name, status in used.items()]
    return "\n".join(lines) + "\n"


def dot(
    title: str,
    steps: Sequence[PipelineStep],
    order: Sequence[PipelineStep] | None,
    outcomes: Mapping[str, StepExecutionResult] | None = None,
) -> str:
    """A digraph from left to right."""
    lines = [f"digraph {json.dumps(title)} {{", "    rankdir=LR;", "    node [shape=box];"]
    for step in _every(steps):
        facts = ["shape=diamond"] if isinstance(step, ConditionalStep) else []
        if outcomes is not None and step.name in outcomes:
            facts.append(f'style=filled, fillcolor="{_COLOURS[outcomes[step.name].status]}"')
        shown = f" [{', '.join(facts)}]" if facts else ""
        lines.append(f"    {json.dumps(step.name)}{shown};")
    for source, target, label in _edges(steps, order):
        shown = f" [label={json.dumps(label)}, style=dashed]" if label else ""
        lines.append(f"    {json.dumps(source)} -> {json.dumps(target)}{shown};")
    return "\n".join([*lines, "}"]) + "\n"


def _every(steps: Sequence[PipelineStep]) -> Iterator[PipelineStep]:
    for step in steps:
        yield step
        yield from _every(step.inner_steps)


def _edges(steps: Sequence[PipelineStep], order: Sequence[PipelineStep] | None) -> Iterator[Edge]:
    """Dependencies; with an order also what simply comes next, and always what is inside."""
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
