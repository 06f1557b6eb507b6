"""What is wrong with an object graph, in words that name the place and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lexigram.contracts.core.di import ServiceScope
from lexigram.contracts.core.errors import LexigramError
from lexigram.di.binding import Binding, Site, eager
from lexigram.di.errors import (
    AmbiguousDependencyError,
    AsyncDependencyError,
    CircularDependencyError,
    ModuleExportError,
    ModuleVisibilityError,
    OverrideError,
    ProtocolValidationError,
    RegistrationError,
    RuntimeArgumentError,
    ScopedResolutionError,
    SignatureError,
    UnresolvableDependencyError,
)
from lexigram.di.markers import Key, show
from lexigram.di.signature import Parameter, constructor_site

if TYPE_CHECKING:
    from lexigram.di.module import ModuleNode

Steps = Sequence[tuple[Binding, str | None]]


@frozen(kw_only=True)
class Problem:
    """One thing wrong, with its own known code."""

    error: type[LexigramError]
    title: str
    lines: tuple[str, ...] = ()
    fix: str
    near: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The code of the error this would be on its own."""
        return self.error.code

    def render(self) -> str:
        """The problem as a block of text."""
        parts = [f"[{self.code}] {self.title}", *(f"    {line}" for line in self.lines)]
        parts.append(f"    fix: {self.fix}")
        if self.near:
            parts.append(f"    near: {' · '.join(self.near)}")
        return "\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """The problem as JSON-ready data."""
        return {
            "code": self.code,
            "title": self.title,
            "path": list(self.lines),
            "fix": self.fix,
            "near": list(self.near),
        }

    def as_error(self) -> LexigramError:
        """The problem as an error of its own, for what is asked for after the freeze."""
        near = f" (near: {' · '.join(self.near)})" if self.near else ""
        return self.error(f"{self.title}{near}", hint=self.fix)


def path_lines(steps: Steps, missing: Key | None = None, verdict: str = "") -> tuple[str, ...]:
    """A path through the graph, one binding a line.

    Each step is a binding and the parameter that leads on from it; ``missing`` is what the
    last parameter asked for when nothing could be put there.
    """
    rows = [_row(steps, index) for index in range(len(steps))]
    if missing is not None:
        label = f"{_indent(len(steps))}{steps[-1][1]}: {show(missing)}"
        rows.append((label, verdict, ""))
    width = max(len(label) for label, _, _ in rows)
    middle = max((len(site) for _, site, bound in rows if bound), default=0)
    return tuple(
        f"{label:<{width}}  {site:<{middle if bound else 0}}  {bound}".rstrip()
        for label, site, bound in rows
    )


def describe_binding(binding: Binding) -> str:
    """Where a binding was registered: module, file and line, lifetime."""
    if binding.role is not None:
        return f"{binding.role} of {binding.viewpoint.name}"
    verb = "decorated" if binding.pinned else "bound"
    site = binding.site or _site_of(binding.target)  # a marked class was registered nowhere
    where = f"  {site}" if site else ""
    return f"{verb} in {binding.viewpoint.name}{where}  ({binding.lifetime.value})"


def parameter_to(consumer: Binding, target: Binding) -> str:
    """The parameter through which ``consumer`` takes ``target``."""
    for name, edge in consumer.provider.kwargs.items():
        members = getattr(edge, "members", (edge,))
        if any(getattr(member, "binding", None) is target for member in members):
            return str(name)
    return "?"  # taken from the container by hand


@frozen
class Asker:
    """The module that asks for something, in words of where its source can be changed."""

    node: ModuleNode
    importer: ModuleNode | None
    # False where ``scope()`` of the module does not take what asks
    in_scope: bool = True

    @property
    def name(self) -> str:
        """The module that asks, as reports call it."""
        return self.node.name

    @property
    def source(self) -> ModuleNode | None:
        """Whose imports and providers an application writes; None for a configured module."""
        node = self.node if self.importer is None else self.importer
        return None if node.is_configured else node

    def place_to_bind(self) -> str:
        """Where the asker would see what is bound."""
        if self.source is not None:
            return self.source.name
        return "a provider of the application:  Application(..., providers=[...])"

    def way_to_import(self, owner: ModuleNode) -> str:
        """How the asker gets to see the exports of ``owner``."""
        if self.source is not None:
            return f"import it:  imports=[{owner.name}]  in {self.source.name}"
        token = self.node.token.__bases__[0] if self.node.is_feature else self.node.token
        feature = f"{token.__name__}.scope(..., imports=[{owner.name}])"
        ways = [f"list what asks for it in  {feature}"] if self.in_scope else []
        if not (ways and owner.is_configured):
            ways.append(f"show it to all:  @module(..., is_global=True)  on {owner.name}")
        return ", or ".join(ways)


def unbound_key(key: Key, asker: Asker, lines: Iterable[str], near: tuple[str, ...]) -> Problem:
    """Nothing anywhere provides it."""
    return Problem(
        error=UnresolvableDependencyError,
        title=f"nothing provides {show(key)}",
        lines=tuple(lines),
        fix=f"bind it:  container.singleton({_arguments(key)})  in {asker.place_to_bind()}",
        near=near,
    )


def ambiguous(
    key: Key, asker: str, candidates: Iterable[Binding], lines: Iterable[str] = ()
) -> Problem:
    """Two or more bindings where one was asked for."""
    named = [f"- {binding.name}  {describe_binding(binding)}" for binding in candidates]
    return Problem(
        error=AmbiguousDependencyError,
        title=f"{asker} can see {len(named)} bindings of {show(key)}",
        lines=(*lines, *named),
        fix=f"stop exporting one, give one a name= and ask for Annotated[{_type(key)}, "
        f"Named(...)], or take list[{_type(key)}]",
    )


def invisible(
    key: Key,
    asker: Asker,
    hidden: Sequence[Binding],
    *,
    exported: bool,
    imported: bool,
    lines: Iterable[str] = (),
) -> Problem:
    """Bound somewhere, but not where it was asked for."""
    module = hidden[0].module
    owner = module.name
    if exported:
        why = f"{owner} exports it, but {asker.name} does not import {owner}"
        fix = asker.way_to_import(module)
    else:
        why = f"{owner} binds it but does not export it"
        fix = f"export it:  exports=[{_type(key)}]  in {owner}"
        if not imported and asker.source is not None:
            fix += f", and import {owner} in {asker.source.name}"
        elif not imported:
            fix += f"; then {asker.way_to_import(module)}"
    return Problem(
        error=ModuleVisibilityError,
        title=f"{show(key)} is not visible to {asker.name}: {why}",
        lines=(*lines, *(f"- {binding.name}  {describe_binding(binding)}" for binding in hidden)),
        fix=fix,
    )


def cycle(path: Sequence[Binding]) -> Problem:
    """Constructors that need each other."""
    circle = [*path, path[0]]
    hops = []
    for step, following in pairwise(circle):
        site = _site_of(step.target)
        where = f" {site}" if site else ""
        hops.append(f"{step.name}({parameter_to(step, following)}: {following.name}){where}")
    last, first = path[-1], path[0]
    return Problem(
        error=CircularDependencyError,
        title=f"cycle: {' -> '.join(binding.name for binding in circle)}",
        lines=("  ->  ".join(hops),),
        fix=f"break one edge: take `{parameter_to(last, first)}: Lazy[{spell(first.key)}]` in "
        f"{last.name} and call it when needed",
    )


def leak(keeper: Binding, kept: Binding) -> Problem:
    """A singleton that would keep something of a scope, directly or through a transient."""
    path: list[tuple[Binding, str | None]] = [(keeper, parameter_to(keeper, kept))]
    target = kept
    while target.lifetime is not ServiceScope.SCOPED and not target.is_resource:
        below = next((item for item in eager(target.provider) if item.needs_scope), None)
        if below is None:  # it asks for the scope itself
            break
        path.append((target, parameter_to(target, below)))
        target = below
    path.append((target, None))
    what = "scoped" if target.lifetime is ServiceScope.SCOPED else "scope-bound"
    wrapper = "AsyncFactory" if kept.needs_await else "Factory"
    instead = f"take `{path[0][1]}: {wrapper}[{spell(kept.key)}]` and call it per unit of work"
    if target.is_resource:  # a factory in a singleton would never tear it down
        instead = f"resolve {spell(kept.key)} in a scope of your own where it is used"
    return Problem(
        error=ScopedResolutionError,
        title=f"scope leak: singleton {keeper.name} would keep {what} {target.name} alive",
        lines=path_lines(path),
        fix=f"make {keeper.name} scoped, or {instead}",
    )


def singleton_keeps_scope(keeper: Binding, parameter: Parameter) -> Problem:
    """A singleton that asks for the scope it is built in."""
    return Problem(
        error=ScopedResolutionError,
        title=f"singleton {keeper.name} asks for a scope, but is built in none",
        lines=path_lines([(keeper, parameter.name)]),
        fix=f"make {keeper.name} scoped, or take the container and open a scope when needed: "
        "`async with container.scope() as scope`",
    )


def reported(error: LexigramError) -> Problem:
    """What a provider found wrong with what it was given."""
    first, *lines = error.message.splitlines()
    return Problem(
        error=type(error),
        title=first,
        lines=tuple(line.strip() for line in lines),
        fix=error.hint or "see the documentation of the error code",
    )


def generator_as_handler(handler: Binding) -> Problem:
    """A handler that is a generator."""
    return Problem(
        error=RegistrationError,
        title=f"{handler.name} is a generator: its scope would end before it runs",
        lines=path_lines([(handler, None)]),
        fix="open a scope inside it: `async with container.scope() as scope`",
    )


def plain_handler_awaits(handler: Binding) -> Problem:
    """A plain function as the handler, where building needs ``await``."""
    return Problem(
        error=AsyncDependencyError,
        title=f"{handler.name} is a plain function, but what it asks for needs await",
        lines=path_lines([(handler, None)]),
        fix=f"make it `async def {handler.name}`",
    )


def unreadable(binding: Binding, reason: str) -> Problem:
    """A target whose parameters cannot be read."""
    return Problem(
        error=SignatureError,
        title=f"the signature of {binding.target!r}, bound to {binding.name}, cannot be read",
        lines=(reason, describe_binding(binding)),
        fix="bind it with factory= a function that has annotated parameters",
    )


def bad_parameter(binding: Binding, parameter: Parameter) -> Problem:
    """A parameter nobody can fill."""
    fix = f"annotate {parameter.name} with the type it needs, or give it a default"
    if not parameter.bare:
        fix = (
            f"import the type of {parameter.name} at run time (not only under TYPE_CHECKING), "
            "at the top of the module"
        )
    return Problem(
        error=SignatureError,
        title=f"parameter {parameter.name} of {binding.name} cannot be filled: {parameter.trouble}",
        lines=path_lines([(binding, parameter.name)]),
        fix=fix,
    )


def abstract_target(binding: Binding, members: Sequence[str]) -> Problem:
    """A class that cannot be instantiated."""
    name = binding.target.__name__
    what = f"abstract: {', '.join(members)}" if members else "a protocol"
    return Problem(
        error=RegistrationError,
        title=f"{binding.name} is built from {name}, which is {what}",
        lines=(describe_binding(binding),),
        fix=f"bind a class that implements it:  container.{binding.lifetime.value}"
        f"({_arguments(binding.key)})",
    )


def lacks_members(binding: Binding, members: Sequence[str]) -> Problem:
    """A class bound to a protocol that it does not implement."""
    name = binding.target.__name__
    return Problem(
        error=ProtocolValidationError,
        title=f"{name} is bound to {binding.name} but lacks {', '.join(members)}",
        lines=path_lines([(binding, None)]),
        fix=f"implement {', '.join(members)} in {name}, or bind another class",
    )


def generic_without_type(binding: Binding, parameter: Parameter, target: Binding) -> Problem:
    """``Repo`` asked for where only ``Repo[User]`` can be built."""
    return Problem(
        error=UnresolvableDependencyError,
        title=f"{binding.name} asks for {target.name}, which is generic, without saying of what",
        lines=path_lines([(binding, parameter.name), (target, None)]),
        fix=f"take `{parameter.name}: {target.name}[...]`",
    )


def needs_arguments(binding: Binding, parameter: Parameter, target: Binding) -> Problem:
    """A service with run time arguments, asked for like any other."""
    wanted = [item.name for item in target.parameters if item.is_required_argument]
    return Problem(
        error=RuntimeArgumentError,
        title=f"{target.name} takes {', '.join(wanted)} at run time, {binding.name} gives nothing",
        lines=path_lines([(binding, parameter.name), (target, None)]),
        fix=f"take `{parameter.name}: Factory[{spell(target.key)}]` and call it with "
        f"{', '.join(f'{name}=...' for name in wanted)}",
    )


def async_in_sync(binding: Binding, parameter: Parameter, target: Binding) -> Problem:
    """A Factory or Lazy of what needs ``await``."""
    asked = parameter.wish.name.capitalize()
    return Problem(
        error=AsyncDependencyError,
        title=f"building {target.name} needs await, but {asked}[{spell(target.key)}] is called "
        "without it",
        lines=path_lines([(binding, parameter.name), (target, None)]),
        fix=f"take `{parameter.name}: AsyncFactory[{spell(target.key)}]` and await its call",
    )


def factory_of_singleton(binding: Binding, parameter: Parameter, target: Binding) -> Problem:
    """A Factory of what exists once."""
    return Problem(
        error=RegistrationError,
        title=f"{binding.name} asks for a factory of {target.name}, which is a singleton",
        lines=path_lines([(binding, parameter.name), (target, None)]),
        fix=f"take `{parameter.name}: Lazy[{spell(target.key)}]`, or bind {target.name} as "
        "transient",
    )


def factory_with_teardown(binding: Binding, parameter: Parameter, target: Binding) -> Problem:
    """A Factory in a singleton: no scope would end what it makes."""
    return Problem(
        error=ScopedResolutionError,
        title=f"singleton {binding.name} builds {target.name} by factory, but nothing would tear "
        "it down",
        lines=path_lines([(binding, parameter.name), (target, None)]),
        fix="open a scope where it is used: `async with container.scope() as scope: "
        f"await scope.resolve({spell(target.key)})`",
    )


def empty_export(node: ModuleNode, key: Key, near: tuple[str, ...]) -> Problem:
    """An export nobody registers."""
    return Problem(
        error=ModuleExportError,
        title=f"{node.name} exports {show(key)}, but nobody registers it",
        lines=(f"{node.name}  {node.site}",) if node.site else (),
        fix=f"register it in a provider of {node.name}, or take it out of exports",
        near=near,
    )


def cannot_decorate(node: ModuleNode, key: Key, site: Site | None) -> Problem:
    """A decoration of what is not there."""
    return Problem(
        error=RegistrationError,
        title=f"{node.name} decorates {show(key)}, which it cannot see",
        lines=(f"decorated in {node.name}  {site}",),
        fix=f"bind {show(key)}, or import the module that exports it",
    )


def decorates_nothing(node: ModuleNode, key: Key, decorator: Any, site: Site | None) -> Problem:
    """A decorator without a parameter for what it wraps."""
    name = getattr(decorator, "__name__", repr(decorator))
    return Problem(
        error=RegistrationError,
        title=f"{name} decorates {show(key)} but takes no parameter for it",
        lines=(f"decorated in {node.name}  {site}",),
        fix=f"give it a parameter annotated {_type(key)}",
    )


def useless_override(key: Key, near: tuple[str, ...]) -> Problem:
    """An override of the application that changes nothing."""
    return Problem(
        error=OverrideError,
        title=f"overrides has {show(key)}, which nothing provides or asks for",
        fix="check the type, or take it out of overrides",
        near=near,
    )


def spell(key: Key) -> str:
    """A key as it is written in code."""
    if isinstance(key, tuple):
        return f'Annotated[{show(key[0])}, Named("{key[1]}")]'
    return show(key)


def _arguments(key: Key) -> str:
    """What is passed to a registrar method to bind ``key``."""
    name = f', name="{key[1]}"' if isinstance(key, tuple) else ""
    return f"{_type(key)}, ...{name}"


def _type(key: Key) -> str:
    return show(key[0]) if isinstance(key, tuple) else show(key)


def _site_of(target: Any) -> Site | None:
    found = constructor_site(target)
    return Site(*found) if found else None


def _row(steps: Steps, index: int) -> tuple[str, str, str]:
    binding, leads_on = steps[index]
    site = _site_of(binding.target)
    label = binding.name
    if index:
        label = f"{_indent(index)}{steps[index - 1][1]}: {label}"
    elif leads_on:
        label = f"{label}({leads_on})"
    return label, str(site) if site else "", describe_binding(binding)


def _indent(depth: int) -> str:
    return "   " * (depth - 1) + "└─ "
