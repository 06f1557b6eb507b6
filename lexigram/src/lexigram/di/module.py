"""Modules: what belongs together, what it needs, what it shows; and the graph they form."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar, overload

from attrs import define, evolve, field, frozen

from lexigram.di._problems import Problem
from lexigram.di.binding import Site
from lexigram.di.decorators import marked_lifetime
from lexigram.di.errors import (
    ModuleCycleError,
    ModuleDuplicateError,
    ModuleError,
    ModuleImportError,
    ModuleVisibilityError,
)
from lexigram.di.markers import Key
from lexigram.di.provider import Provider
from lexigram.di.signature import key_of

ModuleType: TypeAlias = "type[Any]"
ProviderLike: TypeAlias = "type[Any] | Provider"
M = TypeVar("M", bound=type)

_METADATA = "__lexigram_module__"


@frozen(kw_only=True)
class ModuleMetadata:
    """What ``@module`` recorded on a class."""

    name: str
    imports: tuple[Any, ...] = ()
    providers: tuple[Any, ...] = ()
    exports: tuple[Any, ...] = ()
    is_global: bool = False
    site: Site | None = None


@frozen(kw_only=True, eq=False)
class DynamicModule:
    """A module put together at run time. It replaces what ``@module`` said of ``module``.

    Two different DynamicModules of one class in one application are refused; the bare class
    beside one of them means "the one configured elsewhere".
    """

    module: type[Any]
    providers: Sequence[Any] = ()
    imports: Sequence[Any] = ()
    exports: Sequence[Any] = ()
    is_global: bool = False
    name: str | None = None
    # Made by ``scope()``: sees what the module that imports it sees.
    is_feature: bool = False

    @property
    def resolved_name(self) -> str:
        """The name shown in graphs and errors."""
        return self.name or self.module.__name__


# What a list of modules holds: module classes, and what their ``configure`` and ``stub`` return.
ModuleLike: TypeAlias = type[Any] | DynamicModule


class Module:
    """Base of modules. Declare content with ``@module``; offer ``configure`` and ``stub``."""

    @classmethod
    def configure(cls, *args: Any, **kwargs: Any) -> DynamicModule:
        """The module set up for production. Modules with settings override this."""
        return _dynamic(cls, "configure", args, kwargs)

    @classmethod
    def stub(cls, *args: Any, **kwargs: Any) -> DynamicModule:
        """The module set up for tests: in memory, nothing started. Modules override this."""
        return _dynamic(cls, "stub", args, kwargs)

    @classmethod
    def scope(
        cls, *providers: Any, exports: Sequence[Any] = (), imports: Sequence[Any] = ()
    ) -> DynamicModule:
        """A feature of the importing module, which lends it its visibility."""
        token = type(f"{cls.__name__}Feature", (cls,), {"__module__": cls.__module__})
        return DynamicModule(
            module=token, providers=providers, imports=imports, exports=exports, is_feature=True
        )

    @classmethod
    async def on_module_booted(cls) -> None:
        """Called once every provider of the application has booted."""

    @classmethod
    async def on_module_shutdown(cls) -> None:
        """Called before the first provider is shut down."""


@overload
def module(cls: M) -> M: ...
@overload
def module(
    *,
    name: str | None = ...,
    imports: Iterable[Any] = ...,
    providers: Iterable[Any] = ...,
    exports: Iterable[Any] = ...,
    is_global: bool = ...,
) -> Callable[[M], M]: ...
def module(
    cls: M | None = None,
    *,
    name: str | None = None,
    imports: Iterable[Any] = (),
    providers: Iterable[Any] = (),
    exports: Iterable[Any] = (),
    is_global: bool = False,
) -> M | Callable[[M], M]:
    """Declare a class as a module: what it imports, which providers it has, what it exports."""
    frame = sys._getframe(1)
    site = Site(frame.f_code.co_filename, frame.f_lineno)

    def declare(target: M) -> M:
        metadata = ModuleMetadata(
            name=name or target.__name__,
            imports=tuple(imports),
            providers=tuple(providers),
            exports=tuple(exports),
            is_global=is_global,
            site=site,
        )
        setattr(target, _METADATA, metadata)
        return target

    return declare(cls) if cls is not None else declare


def global_module(cls: M) -> M:
    """Make a declared module global: every other module sees its exports."""
    own = vars(cls).get(_METADATA) or ModuleMetadata(name=cls.__name__)
    setattr(cls, _METADATA, evolve(own, is_global=True))
    return cls


@define(eq=False)
class ModuleNode:
    """One module of an application, with everything the container must know of it."""

    token: type[Any]
    name: str
    providers: list[Provider] = field(factory=list)
    # Classes marked with @singleton/@scoped/@transient/@injectable, listed as providers.
    injectables: list[type[Any]] = field(factory=list)
    imports: list[ModuleNode] = field(factory=list)
    exports: tuple[Any, ...] = ()
    is_global: bool = False
    is_feature: bool = False
    # Made by ``configure()`` or part of Lexigram: an application cannot write imports into it.
    is_configured: bool = False
    site: Site | None = None

    def exported_keys(self) -> list[Key]:
        """Keys this module exports itself, without re-exported modules."""
        return [key_of(export) for export in self.exports if not _is_module(export)]

    def reexported(self) -> list[ModuleNode]:
        """Imported modules whose exports this one passes on."""
        tokens = {_token(export) for export in self.exports if _is_module(export)}
        return [node for node in self.imports if node.token in tokens]


class Root(Module):
    """The application itself: sees every export, and what it registers is seen by all."""


class ModuleGraph:
    """All modules of an application in import order; problems are kept for the freeze report."""

    def __init__(self, modules: Iterable[ModuleLike] = (), providers: Iterable[Any] = ()) -> None:
        listed = list(modules)
        self.root = ModuleNode(Root, "app", is_global=True)
        self.problems: list[Problem] = []
        self._nodes: dict[type[Any], ModuleNode] = {}
        self._configured: dict[type[Any], DynamicModule] = {}
        self._order: list[ModuleNode] = []
        _fill_providers(self.root, providers)
        self._configure(listed)
        for entry in listed:
            self._attach(self.root, entry)
        self._check_cycles()
        self._check_features()

    @property
    def nodes(self) -> list[ModuleNode]:
        """Every module, imported ones before their importers, the root last."""
        return [*self._order, self.root]

    def node(self, token: ModuleLike) -> ModuleNode:
        """The node of a module class or DynamicModule; the error lists what there is."""
        key = _token(token)
        if key is Root:
            return self.root
        try:
            return self._nodes[key]
        except KeyError:
            known = ", ".join(sorted(node.name for node in self._order)) or "none"
            raise ModuleError(
                f"module {getattr(key, '__name__', key)} is not part of this application",
                hint=f"add it to modules=[...] (there are: {known})",
            ) from None

    def _configure(self, modules: list[ModuleLike]) -> None:
        """Find the one DynamicModule of each class before nodes are made.

        Again from the start with what was found, since it replaces what its bare class said.
        """
        tried: list[dict[type[Any], DynamicModule]] = []
        importers: dict[DynamicModule, list[str]] = {}
        while self._configured not in tried:
            tried.append(self._configured)
            importers = self._walk(modules)
            self._configured = {}
            for entry in importers:
                self._configured.setdefault(entry.module, entry)
        for entry, names in importers.items():
            first = self._configured[entry.module]
            if entry is not first:
                self.problems.append(_duplicate(entry, importers[first], names))

    def _walk(self, modules: list[ModuleLike]) -> dict[DynamicModule, list[str]]:
        """Every DynamicModule that is imported, with the names of those who import it."""
        found: dict[DynamicModule, list[str]] = {}
        pending: list[tuple[str, ModuleLike]] = [(self.root.name, entry) for entry in modules]
        seen = set[type[Any]]()
        for importer, entry in pending:  # grows while it is walked
            token = _token(entry)
            if isinstance(entry, DynamicModule):
                found.setdefault(entry, []).append(importer)
            if token not in seen:
                seen.add(token)
                declared = _read_metadata(self._configured.get(token, entry))
                pending.extend((declared.name, imported) for imported in declared.imports)
        return found

    def _attach(self, importer: ModuleNode, entry: ModuleLike) -> None:
        """Make nodes depth first, so that imports come before importers."""
        stack: list[tuple[ModuleNode, Any]] = [(importer, entry)]
        while stack:
            parent, item = stack.pop()
            if parent is _FINISH:
                self._order.append(item)
                continue
            token = _token(item)
            node = self._nodes.get(token)
            if node is None:
                source: ModuleLike = self._configured.get(token) or item
                node = self._nodes[token] = _make_node(source)
                stack.append((_FINISH, node))
                stack.extend((node, child) for child in reversed(_read_metadata(source).imports))
            if node not in parent.imports:
                parent.imports.append(node)

    def _check_cycles(self) -> None:
        state: dict[ModuleNode, int] = {}
        for start in self._order:
            path: list[ModuleNode] = []
            stack: list[tuple[ModuleNode, int]] = [(start, 0)]
            while stack:
                node, position = stack.pop()
                if position == 0:
                    if state.get(node):
                        continue
                    state[node] = 1
                    path.append(node)
                if position < len(node.imports):
                    stack.append((node, position + 1))
                    child = node.imports[position]
                    if state.get(child) == 1:
                        self.problems.append(_cycle(path[path.index(child) :]))
                    elif not state.get(child):
                        stack.append((child, 0))
                else:
                    state[node] = 2
                    path.pop()

    def _check_features(self) -> None:
        for node in self._order:
            importers = [other for other in self.nodes if node in other.imports]
            if node.is_feature and len(importers) > 1:
                self.problems.append(_feature_imported_twice(node, importers))


_FINISH = ModuleNode(Root, "")


def _dynamic(cls: type[Any], method: str, args: Any, kwargs: Any) -> DynamicModule:
    if args or kwargs:
        raise TypeError(
            f"{cls.__name__}.{method}() takes no settings: the module does not override it"
        )
    declared = _read_metadata(cls)
    return DynamicModule(
        module=cls,
        imports=declared.imports,
        providers=declared.providers,
        exports=declared.exports,
        is_global=declared.is_global,
    )


def _token(entry: Any) -> type[Any]:
    token = entry.module if isinstance(entry, DynamicModule) else entry
    if not isinstance(token, type):
        raise ModuleImportError(
            f"{entry!r} is not a module",
            hint="pass a class decorated with @module, or a DynamicModule",
        )
    return token


def _is_module(export: Any) -> bool:
    return isinstance(export, DynamicModule) or (
        isinstance(export, type) and (_METADATA in vars(export) or issubclass(export, Module))
    )


def _read_metadata(entry: ModuleLike) -> ModuleMetadata:
    token = _token(entry)
    static: ModuleMetadata | None = vars(token).get(_METADATA)
    if isinstance(entry, DynamicModule):
        return ModuleMetadata(
            name=entry.resolved_name,
            imports=tuple(entry.imports),
            providers=tuple(entry.providers),
            exports=tuple(entry.exports),
            is_global=entry.is_global or bool(static and static.is_global),
            site=static.site if static else None,
        )
    if static is None and not issubclass(token, Module):
        raise ModuleImportError(
            f"{token.__name__} is not a module",
            hint=f"decorate it: @module(...) class {token.__name__}(Module)",
        )
    return static or ModuleMetadata(name=token.__name__)


def _make_node(entry: ModuleLike) -> ModuleNode:
    declared = _read_metadata(entry)
    node = ModuleNode(
        _token(entry),
        declared.name,
        exports=declared.exports,
        is_global=declared.is_global,
        is_feature=isinstance(entry, DynamicModule) and entry.is_feature,
        is_configured=isinstance(entry, DynamicModule)
        or _token(entry).__module__.startswith("lexigram."),
        site=declared.site,
    )
    _fill_providers(node, declared.providers)
    return node


def _fill_providers(node: ModuleNode, providers: Iterable[Any]) -> None:
    for entry in providers:
        if isinstance(entry, Provider):
            node.providers.append(entry)
        elif isinstance(entry, type) and issubclass(entry, Provider):
            node.providers.append(entry())
        elif isinstance(entry, type) and marked_lifetime(entry):
            node.injectables.append(entry)
        else:
            raise ModuleImportError(
                f"{node.name} lists {entry!r} as a provider",
                hint="list a Provider class or instance, or a class marked with "
                "@singleton, @scoped, @transient or @injectable",
            )


def _duplicate(entry: DynamicModule, first: list[str], second: list[str]) -> Problem:
    name = entry.module.__name__
    return Problem(
        error=ModuleDuplicateError,
        title=f"{name} is configured in two different ways",
        lines=(f"imported by {', '.join(first)}", f"imported by {', '.join(second)}"),
        fix=f"keep one {name}.configure(...) at the root and import the bare class {name} elsewhere",
    )


def _cycle(path: list[ModuleNode]) -> Problem:
    names = " -> ".join(node.name for node in [*path, path[0]])
    return Problem(
        error=ModuleCycleError,
        title=f"modules import each other: {names}",
        lines=tuple(f"{node.name}  {node.site}" for node in path if node.site),
        fix="move what both need into a third module and import that one",
    )


def _feature_imported_twice(node: ModuleNode, importers: list[ModuleNode]) -> Problem:
    names = " and ".join(other.name for other in importers)
    return Problem(
        error=ModuleVisibilityError,
        title=f"{node.name}, made by scope(), is imported by {names}",
        fix="call scope(...) once per importing module: it lends its own visibility",
    )
