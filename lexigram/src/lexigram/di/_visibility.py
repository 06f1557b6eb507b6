"""Which binding a module means by a key: its own, its imports' exports, and the globals."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from lexigram.di.binding import Binding
from lexigram.di.markers import Key, origin_of
from lexigram.di.module import ModuleGraph, ModuleNode
from lexigram.di.signature import key_with_name

Table = dict[Key, list[Binding]]


class Visibility:
    """The tables of who sees what, made once per module on first use."""

    def __init__(self, modules: ModuleGraph, bindings: Iterable[Binding]) -> None:
        self.modules = modules
        self._own: dict[ModuleNode, Table] = {node: {} for node in modules.nodes}
        self._exports: dict[ModuleNode, Table] = {}
        self._visible: dict[ModuleNode, Table] = {}
        self._importers = {
            child: node for node in modules.nodes for child in node.imports if child.is_feature
        }
        for binding in bindings:
            self.add(binding)

    def add(self, binding: Binding) -> None:
        """Take in a binding; tables made so far are forgotten."""
        self._own[binding.module].setdefault(binding.key, []).append(binding)
        self._exports.clear()
        self._visible.clear()

    def remove(self, binding: Binding) -> None:
        """Forget a binding."""
        self._own[binding.module][binding.key].remove(binding)
        self._exports.clear()
        self._visible.clear()

    def candidates(self, node: ModuleNode, key: Key) -> list[Binding]:
        """Every binding ``node`` could mean by ``key``."""
        return self._table(node).get(key, [])

    def provides(self, node: ModuleNode, key: Key) -> bool:
        """True when ``node`` sees anything under ``key``; asks without making its table."""
        return any(source.get(key) for source in self._sources(node))

    def keys(self, node: ModuleNode) -> list[Key]:
        """Every key ``node`` sees."""
        return [key for key, bindings in self._table(node).items() if bindings]

    def collection(self, node: ModuleNode, key: Key) -> list[Binding]:
        """What ``list[key]`` holds: named, unnamed and subclasses, in declared order."""
        if isinstance(key, tuple):
            return self.candidates(node, key)
        found = [
            binding
            for bindings in self._table(node).values()
            for binding in bindings
            if _is_kind_of(binding.service, key)
        ]
        return sorted(found, key=lambda binding: binding.order)

    def anywhere(self, key: Key) -> list[Binding]:
        """Every binding of ``key``, visible or not."""
        return [binding for table in self._own.values() for binding in table.get(key, [])]

    def exports(self, node: ModuleNode) -> Table:
        """What ``node`` shows to those who import it."""
        done = self._exports.get(node)
        if done is None:
            if node is self.modules.root:
                return self._own[node]  # the application shows all it has
            done = self._exports[node] = {}  # put in first: an import cycle ends here
            for key in node.exported_keys():
                _merge(done, self.behind_export(node, key))
            for child in node.reexported():
                _merge(done, self.exports(child))
        return done

    def behind_export(self, node: ModuleNode, key: Key) -> Table:
        """What stands behind an export: the type, its named bindings and its generic forms."""
        sources = [self._own[node], *(self.exports(child) for child in node.imports)]
        for source in sources:
            found = {other: bound for other, bound in source.items() if covers(key, other)}
            if any(found.values()):
                return found
        return {}

    def importer(self, node: ModuleNode) -> ModuleNode | None:
        """Who lends its visibility to a module made by ``scope()``."""
        return self._importers.get(node)

    def _table(self, node: ModuleNode) -> Table:
        done = self._visible.get(node)
        if done is None:
            merged: Table = {}
            for source in self._sources(node):
                _merge(merged, source)
            done = {key: _without_defaults(found) for key, found in merged.items()}
            self._visible[node] = done
        return done

    def _sources(self, node: ModuleNode) -> list[Table]:
        shown = self.modules.nodes if node is self.modules.root else node.imports
        others = [other for other in self.modules.nodes if other.is_global and other not in shown]
        tables = [self.exports(other) for other in [*shown, *others] if other is not node]
        importer = self._importers.get(node)
        if importer is not None:
            tables.append(self._table(importer))
        return [self._own[node], *tables]


class Conditions:
    """What a ``when=`` callable may ask, at freeze."""

    def __init__(self, config: Any, binding: Binding, visibility: Visibility) -> None:
        self._binding = binding
        self._visibility = visibility
        self.config = config

    def has(self, service: Any, *, name: str | None = None) -> bool:
        """True when the binding's module sees another binding of the service."""
        return self._sees(key_with_name(service, name))

    def taken(self) -> bool:
        """True when the very key of the binding is provided by another."""
        return self._sees(self._binding.key)

    def _sees(self, key: Key) -> bool:
        return self._visibility.provides(self._binding.module, key)


def sift(
    bindings: Iterable[Binding], modules: ModuleGraph, config: Any
) -> tuple[list[Binding], list[Binding]]:
    """Bindings whose ``when`` holds, and the rest.

    Unconditional ones count first, so that every condition sees them; conditional ones follow
    in the order of registration, each seeing those that held before it.
    """
    listed = list(bindings)
    visibility = Visibility(modules, [item for item in listed if item.when is None])
    left_out = set[Binding]()
    for item in listed:
        if item.when is None:
            continue
        if _holds(item, Conditions(config, item, visibility)):
            visibility.add(item)
        else:
            left_out.add(item)
    kept = [item for item in listed if item not in left_out]
    return kept, [item for item in listed if item in left_out]


def covers(export: Key, key: Key) -> bool:
    """True when exporting ``export`` shows ``key``."""
    if export == key:
        return True
    if isinstance(key, tuple):
        return bool(key[0] == export)
    return isinstance(export, type) and origin_of(key) is export


def _merge(into: Table, source: Table) -> None:
    for key, bindings in source.items():
        known = into.get(key)
        if known is None:
            into[key] = bindings.copy()
        else:
            known.extend(binding for binding in bindings if binding not in known)


def _without_defaults(bindings: list[Binding]) -> list[Binding]:
    """A ``when=unbound`` binding counts only where there is no other."""
    return [item for item in bindings if not item.is_default] or bindings


def _is_kind_of(candidate: Any, service: Any) -> bool:
    if candidate == service:
        return True
    base = origin_of(candidate) or candidate
    # By declared bases only: structural protocols would match what merely looks alike.
    return isinstance(base, type) and isinstance(service, type) and service in base.__mro__


def _holds(binding: Binding, conditions: Conditions) -> bool:
    when = binding.when
    if not callable(when):
        return bool(when)
    try:
        return bool(when(conditions) if inspect.signature(when).parameters else when())
    except Exception as error:
        error.add_note(f"raised by when= of {binding.name}, registered at {binding.site}")
        raise
