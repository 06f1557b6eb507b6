"""In which order providers boot: declared dependencies, module imports, then priority."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from lexigram.app.errors import AppStartupError
from lexigram.di.binding import Binding, Kind, eager
from lexigram.di.module import ModuleGraph, ModuleNode
from lexigram.di.provider import Provider


@frozen(eq=False)
class Seat:
    """A provider at its place: the module it belongs to."""

    provider: Provider
    node: ModuleNode


def seats_of(modules: ModuleGraph) -> list[Seat]:
    """Every provider, imported modules first; two with one name are refused."""
    seats = [Seat(provider, node) for node in modules.nodes for provider in node.providers]
    by_name: dict[str, Seat] = {}
    for seat in seats:
        name = seat.provider.name
        other = by_name.setdefault(name, seat)
        if other is not seat:
            raise AppStartupError(
                f'two providers are named "{name}": {type(other.provider).__name__} of '
                f"{other.node.name} and {type(seat.provider).__name__} of {seat.node.name}",
                hint=f'give one another name: {type(seat.provider).__name__}(name="...")',
            )
    return seats


def boot_levels(
    seats: Sequence[Seat], modules: ModuleGraph, bindings: Iterable[Binding]
) -> list[list[Seat]]:
    """Groups that boot side by side, one group after the other."""
    by_name = {seat.provider.name: seat for seat in seats}
    before = {seat: _declared(seat, by_name) for seat in seats}
    _add_imports(before, modules)
    _add_globals(before, modules)
    _add_started(before, bindings)
    levels: list[list[Seat]] = []
    waiting = list(seats)
    done: set[Seat] = set()
    while waiting:
        ready = [seat for seat in waiting if before[seat] <= done]
        if not ready:
            raise _circle(waiting, before, done)
        first = min(seat.provider.priority for seat in ready)
        level = [seat for seat in ready if seat.provider.priority == first]
        levels.append(level)
        done.update(level)
        waiting = [seat for seat in waiting if seat not in done]
    return levels


def _declared(seat: Seat, by_name: Mapping[str, Seat]) -> set[Seat]:
    found = set()
    for name in seat.provider.dependencies:
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, n=1)
            meant = f' (did you mean "{near[0]}"?)' if near else ""
            raise AppStartupError(
                f'provider "{seat.provider.name}" depends on "{name}", which does not exist{meant}',
                hint=f"there are: {', '.join(sorted(by_name))}",
            )
        found.add(by_name[name])
    found |= {by_name[name] for name in seat.provider.optional_dependencies if name in by_name}
    return found


def _add_imports(before: dict[Seat, set[Seat]], modules: ModuleGraph) -> None:
    """Providers of imported modules come first, through modules without providers too."""
    for seat, earlier in before.items():
        # The root imports everything, but what it registers serves all: only priority counts.
        if seat.node is not modules.root:
            below = _closure(seat.node)
            earlier |= {other for other in before if other.node in below}


def _add_globals(before: dict[Seat, set[Seat]], modules: ModuleGraph) -> None:
    """A global module is imported by all, except by those it needs itself."""
    for source in before:
        if not source.node.is_global or source.node is modules.root:
            continue
        needed = _closure(source.node) | {source.node}
        for seat, earlier in before.items():
            others = seat.node not in needed and seat.node is not modules.root
            if others and not seat.node.is_global:
                earlier.add(source)


def _add_started(before: dict[Seat, set[Seat]], bindings: Iterable[Binding]) -> None:
    """What starts with one provider may stand on what another one makes in its boot."""
    by_provider = {seat.provider: seat for seat in before}
    for binding in bindings:
        if not binding.is_singleton or binding.owner is None or not _starts(binding):
            continue
        seat = by_provider.get(binding.owner)
        for owner in _owners(binding):
            other = by_provider.get(owner)
            if seat is not None and other is not None and seat not in _reach(before, other):
                before[seat].add(other)


def _starts(binding: Binding) -> bool:
    return binding.kind in (Kind.COROUTINE, Kind.GENERATOR, Kind.ASYNC_GENERATOR)


def _owners(binding: Binding) -> set[Provider]:
    found: set[Provider] = set()
    pending, seen = [binding], {binding}
    while pending:
        for dependency in eager(pending.pop().provider):
            if dependency not in seen:
                seen.add(dependency)
                pending.append(dependency)
                if dependency.owner is not None and dependency.owner is not binding.owner:
                    found.add(dependency.owner)
    return found


def _closure(node: ModuleNode) -> set[ModuleNode]:
    found: set[ModuleNode] = set()
    pending = list(node.imports)
    while pending:
        step = pending.pop()
        if step not in found:
            found.add(step)
            pending.extend(step.imports)
    return found


def _reach(before: dict[Seat, set[Seat]], start: Seat) -> set[Seat]:
    found = {start}
    pending = [start]
    while pending:
        for earlier in before[pending.pop()]:
            if earlier not in found:
                found.add(earlier)
                pending.append(earlier)
    return found


def _circle(
    waiting: Sequence[Seat], before: dict[Seat, set[Seat]], done: set[Seat]
) -> AppStartupError:
    path = [waiting[0]]
    while True:
        step = next(seat for seat in waiting if seat in before[path[-1]] - done)
        if step in path:
            names = [seat.provider.name for seat in [*path[path.index(step) :], step]]
            return AppStartupError(
                f"providers wait for each other: {' -> '.join(names)}",
                hint="take one name out of dependencies=, or one import out of its module",
            )
        path.append(step)
