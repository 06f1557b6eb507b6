"""A definition prepared for running: edges, and the nodes that a join waits for.

Nodes are numbers here and sets of nodes are bits of an int, so that "does anything that is still
to run lead to this node" is one ``&``. ``explanation/graphs.md`` tells the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from attrs import frozen

from lexigram.workflow.graph.edge import Condition, Each, WorkflowEdge


class Way(NamedTuple):
    """An edge out of a node."""

    target: int
    edge: WorkflowEdge
    # no condition and no fan-out: always taken, once
    plain: bool
    each: Each | None
    # leads back into a loop that contains its source
    back: bool


@frozen
class Plan:
    """All lists are by the number of a node."""

    names: tuple[str, ...]
    nodes: tuple[Any, ...]
    numbers: Mapping[str, int]
    entry: int
    ways: tuple[tuple[Way, ...], ...]
    # the only way, where it is plain and the node does not end the run: the fast lane
    only: tuple[int | None, ...]
    # bits of the nodes that lead here without a loop
    before: tuple[int, ...]
    # bits of the nodes of the loop that begins here
    loop: tuple[int, ...]
    in_cycle: tuple[bool, ...]
    # nodes that get the number of their visit
    visited: tuple[bool, ...]
    # not terminal: missing; terminal: its condition, None for always
    terminals: Mapping[int, Condition | None]
    order: tuple[int, ...]


def compiled(
    nodes: Mapping[str, Any],
    edges: Sequence[WorkflowEdge],
    entry: str,
    terminals: Mapping[str, Condition | None],
) -> Plan:
    """The plan of a definition that was found to be in order."""
    names = tuple(nodes)
    numbers = {name: number for number, name in enumerate(names)}
    links: list[list[tuple[int, WorkflowEdge]]] = [[] for _ in names]
    for edge in edges:
        links[numbers[edge.source]].append((numbers[edge.target], edge))
    targets = [[target for target, _ in out] for out in links]
    start = numbers[entry]
    back = back_edges(targets, start)
    forward = [
        [target for target in out if (source, target) not in back]
        for source, out in enumerate(targets)
    ]
    order = topological(forward, start)
    ends = {numbers[name]: condition for name, condition in terminals.items()}
    ways = tuple(
        tuple(_way(source, target, edge, back) for target, edge in out)
        for source, out in enumerate(links)
    )
    return Plan(
        names=names,
        nodes=tuple(nodes.values()),
        numbers=numbers,
        entry=start,
        ways=ways,
        only=tuple(_only(number, out, ends) for number, out in enumerate(ways)),
        before=tuple(ancestors(forward, order)),
        loop=tuple(_loops(targets, back)),
        in_cycle=tuple(cyclic(targets)),
        visited=tuple(bool(getattr(node, "needs_visit", False)) for node in nodes.values()),
        terminals=ends,
        order=tuple(order),
    )


def _way(source: int, target: int, edge: WorkflowEdge, back: set[tuple[int, int]]) -> Way:
    plain = edge.condition is None and edge.each is None
    return Way(target, edge, plain, edge.each, (source, target) in back)


def _only(number: int, ways: Sequence[Way], ends: Mapping[int, Any]) -> int | None:
    if number in ends or len(ways) != 1 or not ways[0].plain or ways[0].back:
        return None
    return ways[0].target


def back_edges(targets: Sequence[Sequence[int]], start: int) -> set[tuple[int, int]]:
    """Edges that close a loop, seen from the start: to a node that is still being walked from."""
    found: set[tuple[int, int]] = set()
    state = [0] * len(targets)  # 0 new, 1 on the path, 2 done
    path: list[tuple[int, Iterator[int]]] = [(start, iter(targets[start]))]
    state[start] = 1
    while path:
        node, rest = path[-1]
        target = next(rest, None)
        if target is None:
            state[node] = 2
            path.pop()
        elif state[target] == 1:
            found.add((node, target))
        elif state[target] == 0:
            state[target] = 1
            path.append((target, iter(targets[target])))
    return found


def topological(forward: Sequence[Sequence[int]], start: int) -> list[int]:
    """Nodes that the start leads to, so that edges point forward; ties in the order of edges."""
    reached, pending = {start}, [start]
    while pending:
        for target in forward[pending.pop()]:
            if target not in reached:
                reached.add(target)
                pending.append(target)
    missing = dict.fromkeys(reached, 0)
    for node in reached:
        for target in forward[node]:
            missing[target] += 1
    order: list[int] = []
    ready = [start]
    while ready:
        node = ready.pop(0)
        order.append(node)
        for target in forward[node]:
            missing[target] -= 1
            if missing[target] == 0:
                ready.append(target)
    return order


def ancestors(forward: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """Bits of all nodes that lead to each node."""
    before = [0] * len(forward)
    for node in order:
        mine = before[node] | (1 << node)
        for target in forward[node]:
            before[target] |= mine
    return before


def reachable(targets: Sequence[Sequence[int]], start: int) -> set[int]:
    """The start and all that it leads to."""
    found, pending = {start}, [start]
    while pending:
        for target in targets[pending.pop()]:
            if target not in found:
                found.add(target)
                pending.append(target)
    return found


def cyclic(targets: Sequence[Sequence[int]]) -> list[bool]:
    """Which nodes can come back to themselves."""
    result = [node in out for node, out in enumerate(targets)]
    sources: list[list[int]] = [[] for _ in targets]
    for source, out in enumerate(targets):
        for target in out:
            sources[target].append(source)
    # Kosaraju: nodes in the order in which a walk leaves them, taken backwards against the
    # edges, give the groups whose members all lead to each other.
    seen: set[int] = set()
    for node in reversed(_order_targets(targets)):
        if node not in seen:
            group = _walk(sources, node, seen)
            if len(group) > 1:
                for member in group:
                    result[member] = True
    return result


def _order_targets(targets: Sequence[Sequence[int]]) -> list[int]:
    order: list[int] = []
    seen: set[int] = set()
    for start in range(len(targets)):
        if start in seen:
            continue
        seen.add(start)
        path = [(start, iter(targets[start]))]
        while path:
            node, rest = path[-1]
            target = next((t for t in rest if t not in seen), None)
            if target is None:
                order.append(node)
                path.pop()
            else:
                seen.add(target)
                path.append((target, iter(targets[target])))
    return order


def _walk(links: Sequence[Sequence[int]], start: int, seen: set[int]) -> list[int]:
    found, pending = [start], [start]
    seen.add(start)
    while pending:
        for target in links[pending.pop()]:
            if target not in seen:
                seen.add(target)
                found.append(target)
                pending.append(target)
    return found


def _loops(targets: Sequence[Sequence[int]], back: set[tuple[int, int]]) -> list[int]:
    """For each node where a loop begins, the nodes that lead back to it without passing it."""
    loops = [0] * len(targets)
    sources: list[list[int]] = [[] for _ in targets]
    for source, out in enumerate(targets):
        for target in out:
            sources[target].append(source)
    for tail, head in back:
        inside, pending = {head}, [tail]
        while pending:
            node = pending.pop()
            if node not in inside:
                inside.add(node)
                pending.extend(sources[node])
        for node in inside - {head}:
            loops[head] |= 1 << node
    return loops
