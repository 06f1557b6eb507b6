"""Read from a constructor or factory which services its parameters ask for."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from enum import Enum, auto
from typing import Annotated, Any, ForwardRef, TypeVar, Union, get_args, get_origin, get_type_hints

from attrs import frozen

from lexigram.contracts.core.di import (
    BootContainerProtocol,
    ContainerResolverProtocol,
    ScopeProtocol,
)
from lexigram.di.markers import (
    RUNTIME_ARGUMENT,
    AsyncFactory,
    Factory,
    Inject,
    Key,
    Lazy,
    Named,
)


class Wish(Enum):
    """In which form a parameter wants its service."""

    ONE = auto()
    ALL = auto()  # list[T]
    FACTORY = auto()
    ASYNC_FACTORY = auto()
    LAZY = auto()
    ARGUMENT = auto()  # given at run time
    RESOLVER = auto()  # the container, as the owning module sees it
    SCOPE = auto()  # the scope it is built in


@frozen
class Parameter:
    """One parameter of a constructor or factory."""

    name: str
    key: Key
    wish: Wish = Wish.ONE
    optional: bool = False
    has_default: bool = False
    # Passed by position unless an earlier parameter was left to its default.
    keyword_only: bool = False
    # Why the annotation cannot be used; such a parameter is a problem at freeze.
    trouble: str | None = None


_RESOLVERS: set[Any] = {ContainerResolverProtocol, BootContainerProtocol}
_SCOPES: set[Any] = {ScopeProtocol}
_WRAPPERS = {
    Factory: Wish.FACTORY,
    AsyncFactory: Wish.ASYNC_FACTORY,
    Lazy: Wish.LAZY,
    list: Wish.ALL,
}
# list[str] is data, not "every str that is bound".
_PLAIN = (str, bytes, int, float, bool, complex, dict, list, tuple, set, object)


def injectable_aliases(*, resolvers: type[Any] | None = None, scopes: type[Any] | None = None) -> None:
    """Let the concrete container and scope classes be asked for like their protocols."""
    if resolvers is not None:
        _RESOLVERS.add(resolvers)
    if scopes is not None:
        _SCOPES.add(scopes)


def parameters(
    target: Callable[..., Any], type_arguments: dict[Any, Any] | None = None
) -> tuple[Parameter, ...]:
    """What ``target`` asks for, in order; ``*args`` and ``**kwargs`` are left alone."""
    function = _function(target)
    if function is None:
        return ()
    specs = _specs(function, skip_first=isinstance(target, type))
    annotations, trouble = _annotations(target, function)
    return tuple(
        _parameter(name, annotations, trouble, default, keyword_only, type_arguments or {})
        for name, default, keyword_only in specs
    )


def key_of(annotation: Any) -> Key:
    """The key an annotation asks for: ``Annotated[T, Named("x")]`` is ``(T, "x")``."""
    if get_origin(annotation) is not Annotated:
        return annotation  # type: ignore[no-any-return]
    service, *metadata = get_args(annotation)
    for mark in metadata:
        if isinstance(mark, Named):
            return (service, mark.name)
        if isinstance(mark, Inject):
            return mark.token
    return service  # type: ignore[no-any-return]


def constructor_site(target: Any) -> tuple[str, int] | None:
    """File and line of a constructor or factory, or of its class where there is none."""
    function = _function(target)
    code = getattr(function, "__code__", None)
    if code is not None and not code.co_filename.startswith("<"):
        return code.co_filename, code.co_firstlineno
    try:
        lines, number = inspect.findsource(target)
    except (OSError, TypeError):
        return None
    return (inspect.getsourcefile(target) or "?", number + 1) if lines else None


def _function(target: Any) -> Any:
    """The callable whose signature counts; None for a class without a constructor of its own."""
    if not isinstance(target, type):
        if inspect.isroutine(target) or hasattr(target, "func"):
            return target
        return type(target).__call__
    init = target.__init__  # type: ignore[misc]
    if init is not object.__init__:
        # Protocol classes in the bases put a placeholder __init__ in the way.
        return None if getattr(init, "__qualname__", "").startswith("_no_init_or") else init
    return None if target.__new__ is object.__new__ else target.__new__


def _specs(function: Any, *, skip_first: bool) -> list[tuple[str, bool, bool]]:
    """Name, has default, keyword only; read from the code object, since inspect costs 10x."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__") or hasattr(function, "__self__"):
        return _slow_specs(function, skip_first=skip_first)
    count = code.co_argcount
    defaults = len(function.__defaults__ or ())
    specs = [
        (name, index >= count - defaults, False)
        for index, name in enumerate(code.co_varnames[:count])
    ]
    keyword_defaults = function.__kwdefaults__ or {}
    keywords = code.co_varnames[count : count + code.co_kwonlyargcount]
    specs += [(name, name in keyword_defaults, True) for name in keywords]
    return specs[1:] if skip_first else specs


def _slow_specs(function: Any, *, skip_first: bool) -> list[tuple[str, bool, bool]]:
    found = [
        (
            parameter.name,
            parameter.default is not parameter.empty,
            parameter.kind is parameter.KEYWORD_ONLY,
        )
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    return found[1:] if skip_first and not hasattr(function, "__self__") else found


def _annotations(target: Any, function: Any) -> tuple[dict[str, Any], str | None]:
    """Evaluated annotations, and what went wrong while evaluating them."""
    function = inspect.unwrap(function)
    raw = getattr(function, "__annotations__", None)
    if raw is None:
        raw = getattr(getattr(function, "__func__", function), "__annotations__", {})
    if not any(isinstance(annotation, str) for annotation in raw.values()):
        return raw, None
    try:
        return get_type_hints(function, include_extras=True), None
    except Exception as error:
        # attrs and dataclasses build __init__ in a namespace of their own: ask the fields.
        if isinstance(target, type):
            try:
                hints = get_type_hints(target, include_extras=True)
            except Exception as second:
                return raw, str(second)
            return {name.lstrip("_"): hint for name, hint in hints.items()} | hints, None
        return raw, str(error)


def _parameter(
    name: str,
    annotations: dict[str, Any],
    trouble: str | None,
    has_default: bool,
    keyword_only: bool,
    type_arguments: dict[Any, Any],
) -> Parameter:
    annotation = annotations.get(name, inspect.Parameter.empty)
    if annotation is inspect.Parameter.empty:
        problem = None if has_default else "it has no annotation"
        return Parameter(name, None, Wish.ONE, False, has_default, keyword_only, problem)
    if isinstance(annotation, (str, ForwardRef)):
        problem = f"its annotation {annotation!r} cannot be evaluated ({trouble})"
        return Parameter(name, None, Wish.ONE, False, has_default, keyword_only, problem)
    if type_arguments:
        annotation = _substitute(annotation, type_arguments)
    key, wish, optional = _wish(annotation)
    return Parameter(name, key, wish, optional, has_default, keyword_only)


def _wish(annotation: Any) -> tuple[Key, Wish, bool]:
    optional = False
    origin = get_origin(annotation)
    if origin is Union or origin is types.UnionType:
        members = [member for member in get_args(annotation) if member is not type(None)]
        optional = len(members) < len(get_args(annotation))
        if len(members) == 1:
            annotation = members[0]
            origin = get_origin(annotation)
    if origin is Annotated and RUNTIME_ARGUMENT in get_args(annotation)[1:]:
        return get_args(annotation)[0], Wish.ARGUMENT, optional
    if annotation in _RESOLVERS:
        return annotation, Wish.RESOLVER, optional
    if annotation in _SCOPES:
        return annotation, Wish.SCOPE, optional
    wrapper = _WRAPPERS.get(origin) if isinstance(origin, type) else None
    if wrapper is not None:
        inner = get_args(annotation)[0]
        if wrapper is not Wish.ALL or inner not in _PLAIN:
            return key_of(inner), wrapper, optional
    return key_of(annotation), Wish.ONE, optional


def _substitute(annotation: Any, type_arguments: dict[Any, Any]) -> Any:
    """Put concrete types for the type variables of an open generic."""
    if isinstance(annotation, TypeVar):
        return type_arguments.get(annotation, annotation)
    free = getattr(annotation, "__parameters__", ())
    if not free:
        return annotation
    return annotation[tuple(type_arguments.get(variable, variable) for variable in free)]
