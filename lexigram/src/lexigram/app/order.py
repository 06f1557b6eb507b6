"""In which order providers boot: declared dependencies, module imports, then priority."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from lexigram.app.errors import AppStartupError
from lexigram.di.binding import Binding, Kind, eager
from lexigram.di.module import ModuleGraph, ModuleNode
from lexigram.di.provider import Provider


@frozen(eq=False)
class ProviderEntry:
    """A provider at its place: the module it belongs to."""

    provider: Provider
    node: ModuleNode


def provider_entries(modules: ModuleGraph) -> list[ProviderEntry]:
    """Every provider, imported modules first; two with one name are refused."""
    entries = [
        ProviderEntry(provider, node) for node in modules.nodes for provider in node.providers
    ]
    by_name: dict[str, ProviderEntry] = {}
    for entry in entries:
        name = entry.provider.name
        other = by_name.setdefault(name, entry)
        if other is not entry:
            raise AppStartupError(
                f'two providers are named "{name}": {type(other.provider).__name__} of '
                f"{other.node.name} and {type(entry.provider).__name__} of {entry.node.name}",
                hint=f'give one another name: {type(entry.provider).__name__}(name="...")',
            )
    return entries


def boot_levels(
    entries: Sequence[ProviderEntry], modules: ModuleGraph, bindings: Iterable[Binding]
) -> list[list[ProviderEntry]]:
    """Groups that boot side by side, one group after the other."""
    by_name = {entry.provider.name: entry for entry in entries}
    before = {entry: _find_dependencies(entry, by_name) for entry in entries}
    _add_imports(before, modules)
    _add_globals(before, modules)
    _add_started(before, bindings)
    levels: list[list[ProviderEntry]] = []
    waiting = list(entries)
    done: set[ProviderEntry] = set()
    while waiting:
        ready = [entry for entry in waiting if before[entry] <= done]
        if not ready:
            raise _circle(waiting, before, done)
        first = min(entry.provider.priority for entry in ready)
        level = [entry for entry in ready if entry.provider.priority == first]
        levels.append(level)
        done.update(level)
        waiting = [entry for entry in waiting if entry not in done]
    return levels


def _find_dependencies(
    entry: ProviderEntry, by_name: Mapping[str, ProviderEntry]
) -> set[ProviderEntry]:
    found = set()
    for name in entry.provider.dependencies:
        if name not in by_name:
            from difflib import get_close_matches  # for who made a mistake only

            near = get_close_matches(name, by_name, n=1)
            meant = f' (did you mean "{near[0]}"?)' if near else ""
            raise AppStartupError(
                f'provider "{entry.provider.name}" depends on "{name}", which does not exist{meant}',
                hint=f"there are: {', '.join(sorted(by_name))}",
            )
        found.add(by_name[name])
    found |= {by_name[name] for name in entry.provider.optional_dependencies if name in by_name}
    return found


def _add_imports(before: dict[ProviderEntry, set[ProviderEntry]], modules: ModuleGraph) -> None:
    """Providers of imported modules come first, through modules without providers too."""
    for entry, earlier in before.items():
        # The root imports everything, but what it registers serves all: only priority counts.
        if entry.node is not modules.root:
            below = _closure(entry.node)
            earlier |= {other for other in before if other.node in below}


def _add_globals(before: dict[ProviderEntry, set[ProviderEntry]], modules: ModuleGraph) -> None:
    """A global module is imported by all, except by those it needs itself."""
    for source in before:
        if not source.node.is_global or source.node is modules.root:
            continue
        needed = _closure(source.node) | {source.node}
        for entry, earlier in before.items():
            others = entry.node not in needed and entry.node is not modules.root
            if others and not entry.node.is_global:
                earlier.add(source)


def _add_started(
    before: dict[ProviderEntry, set[ProviderEntry]], bindings: Iterable[Binding]
) -> None:
    """What starts with one provider may stand on what another one makes in its boot."""
    by_provider = {entry.provider: entry for entry in before}
    for binding in bindings:
        if not binding.is_singleton or binding.owner is None or not _starts(binding):
            continue
        entry = by_provider.get(binding.owner)
        for owner in _owners(binding):
            other = by_provider.get(owner)
            if entry is not None and other is not None and entry not in _reach(before, other):
                before[entry].add(other)


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


def _reach(
    before: dict[ProviderEntry, set[ProviderEntry]], start: ProviderEntry
) -> set[ProviderEntry]:
    found = {start}
    pending = [start]
    while pending:
        for earlier in before[pending.pop()]:
            if earlier not in found:
                found.add(earlier)
                pending.append(earlier)
    return found


def _circle(
    waiting: Sequence[ProviderEntry],
    before: dict[ProviderEntry, set[ProviderEntry]],
    done: set[ProviderEntry],
) -> AppStartupError:
    path = [waiting[0]]
    while True:
        step = next(entry for entry in waiting if entry in before[path[-1]] - done)
        if step in path:
            names = [entry.provider.name for entry in [*path[path.index(step) :], step]]
            return AppStartupError(
                f"providers wait for each other: {' -> '.join(names)}",
                hint="take one name out of dependencies=, or one import out of its module",
            )
        path.append(step)
