"""Everything that is wrong with a definition, found before it runs."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from lexigram.workflow.errors import GraphProblem
from lexigram.workflow.graph import _plan as plan
from lexigram.workflow.graph.edge import Condition, WorkflowEdge


def problems_of(
    nodes: Mapping[str, Any],
    edges: Sequence[WorkflowEdge],
    entry: str | None,
    terminals: Mapping[str, Condition | None],
    reduced: Collection[str],
    *,
    parallel: bool,
) -> list[GraphProblem]:
    """All problems; ways are looked at when it is known where they begin."""
    found = [
        *_names(nodes, edges, entry, terminals),
        *_edges(edges),
        *_conditions(edges, terminals),
    ]
    if entry is None or entry not in nodes:
        return found  # nothing can be said about ways
    # The problems of the rest are reported too, so that one correction is enough.
    whole = [edge for edge in edges if edge.source in nodes and edge.target in nodes]
    return [
        *found,
        *_shape(nodes, whole, entry, terminals),
        *_writes(nodes, whole, entry, reduced, parallel),
    ]


def _names(
    nodes: Mapping[str, Any],
    edges: Sequence[WorkflowEdge],
    entry: str | None,
    terminals: Mapping[str, Condition | None],
) -> Iterator[GraphProblem]:
    known = f"the nodes are {', '.join(map(repr, nodes))}" if nodes else "there is no node at all"
    if entry is None:
        yield GraphProblem("there is no entry node", "say where it begins with set_entry(name)")
    elif entry not in nodes:
        yield GraphProblem(f"the entry node {entry!r} is unknown", f"add it; {known}")
    if not terminals:
        yield GraphProblem("there is no terminal node", "say where it ends with set_terminal(name)")
    for name in terminals:
        if name not in nodes:
            yield GraphProblem(f"the terminal node {name!r} is unknown", f"add it; {known}")
    for edge in edges:
        for end in (edge.source, edge.target):
            if end not in nodes:
                yield GraphProblem(
                    f"the edge {_show(edge)} names the unknown node {end!r}", f"add it; {known}"
                )


def _edges(edges: Sequence[WorkflowEdge]) -> Iterator[GraphProblem]:
    plain = Counter((e.source, e.target) for e in edges if e.condition is None and e.each is None)
    for (source, target), count in plain.items():
        if count > 1:
            yield GraphProblem(
                f"the edge {source} → {target} was added {count} times",
                "add it once; a target runs once however many edges lead to it",
            )


def _conditions(
    edges: Sequence[WorkflowEdge], terminals: Mapping[str, Condition | None]
) -> Iterator[GraphProblem]:
    places = [(f"the condition of {_show(edge)}", edge.condition) for edge in edges]
    places += [(f"the fan-out of {_show(edge)}", edge.each) for edge in edges]
    places += [(f"the condition of terminal {name!r}", test) for name, test in terminals.items()]
    for place, function in places:
        if inspect.iscoroutinefunction(function):
            yield GraphProblem(
                f"{place} is an async function",
                "look at the state only; let a node do the work and write its answer there",
            )


def _shape(
    nodes: Mapping[str, Any],
    edges: Sequence[WorkflowEdge],
    entry: str,
    terminals: Mapping[str, Condition | None],
) -> Iterator[GraphProblem]:
    names = list(nodes)
    targets = _targets(names, edges)
    reached = plan.reachable(targets, names.index(entry))
    for number, name in enumerate(names):
        if number not in reached:
            yield GraphProblem(
                f"no way leads from the entry {entry!r} to node {name!r}",
                f'add an edge to it, such as add_edge("{entry}", "{name}"), or remove it',
            )
    # A loop of edges that are always taken, past no terminal node, never ends.
    bound = [
        e for e in edges if e.condition is None and e.each is None and e.source not in terminals
    ]
    endless = plan.cyclic(_targets(names, bound))
    if any(endless):
        around = ", ".join(name for name, turns in zip(names, endless, strict=True) if turns)
        yield GraphProblem(
            f"the cycle through {around} has no bound: all its edges are always taken",
            "give one of its edges a condition, or make one of its nodes terminal",
        )


def _writes(
    nodes: Mapping[str, Any],
    edges: Sequence[WorkflowEdge],
    entry: str,
    reduced: Collection[str],
    parallel: bool,
) -> Iterator[GraphProblem]:
    """Nodes that may run side by side and say that they write the same key."""
    forks = _forks(edges)
    if not parallel or not (forks or any(edge.each for edge in edges)):
        return
    names = list(nodes)
    numbers = {name: number for number, name in enumerate(names)}
    targets = _targets(names, edges)
    back = plan.back_edges(targets, numbers[entry])
    forward = [[t for t in out if (n, t) not in back] for n, out in enumerate(targets)]
    before = plan.ancestors(forward, plan.topological(forward, numbers[entry]))
    for edge in edges:
        writes = getattr(nodes[edge.target], "writes", None) or ()
        for key in sorted(set(writes) - set(reduced)) if edge.each else ():
            yield GraphProblem(
                f"node {edge.target!r} runs once for each piece of {_show(edge)} and writes {key!r}",
                f'say what becomes of the writes: reduce("{key}", "append"), merge, max or yours',
            )
    for key, writers in _writers(nodes).items():
        if key in reduced:
            continue
        for one, other in combinations(writers, 2):
            fork = _split(numbers[one], numbers[other], before, forks, numbers)
            if fork is not None:
                yield GraphProblem(
                    f"nodes {one!r} and {other!r} may run side by side after {fork!r}, "
                    f"and both write {key!r}",
                    f'give one another output_key, or say what two writes mean: reduce("{key}", '
                    '"append"), merge, max or yours',
                )


def _writers(nodes: Mapping[str, Any]) -> dict[str, list[str]]:
    writers: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for key in sorted(getattr(node, "writes", None) or ()):
            writers.setdefault(key, []).append(name)
    return writers


def _forks(edges: Sequence[WorkflowEdge]) -> dict[str, list[WorkflowEdge]]:
    """Nodes with several ways out, of which at least one is always taken.

    Ways that all have conditions are taken for alternatives: nobody can know whether two of
    them may hold at once. Should they, the engine finds the collision.
    """
    out: dict[str, list[WorkflowEdge]] = {}
    for edge in edges:
        out.setdefault(edge.source, []).append(edge)
    return {
        source: ways
        for source, ways in out.items()
        if len(ways) > 1 and any(way.condition is None for way in ways)
    }


def _split(
    one: int,
    other: int,
    before: Sequence[int],
    forks: Mapping[str, Sequence[WorkflowEdge]],
    numbers: Mapping[str, int],
) -> str | None:
    """The fork after which the two may run side by side; None when one waits for the other."""
    if before[one] >> other & 1 or before[other] >> one & 1:
        return None
    for source, ways in forks.items():
        left = [way for way in ways if _leads(numbers[way.target], one, before)]
        right = [way for way in ways if _leads(numbers[way.target], other, before)]
        for a in left:
            for b in right:
                if a is not b and (a.condition is None or b.condition is None):
                    return source
    return None


def _leads(start: int, end: int, before: Sequence[int]) -> bool:
    return start == end or bool(before[end] >> start & 1)


def _targets(names: Sequence[str], edges: Sequence[WorkflowEdge]) -> list[list[int]]:
    numbers = {name: number for number, name in enumerate(names)}
    targets: list[list[int]] = [[] for _ in names]
    for edge in edges:
        targets[numbers[edge.source]].append(numbers[edge.target])
    return targets


def _show(edge: WorkflowEdge) -> str:
    return f"{edge.source} → {edge.target}"
