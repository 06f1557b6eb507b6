"""Read from a constructor or factory which services its parameters ask for."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import InitVar
from enum import Enum, auto
from functools import partial
from typing import Annotated, Any, TypeVar, Union, get_args, get_type_hints

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
    origin_of,
    show,
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


class Passing(Enum):
    """How an argument reaches its parameter."""

    POSITION = auto()
    EITHER = auto()
    KEYWORD = auto()


@frozen
class Parameter:
    """One parameter of a constructor or factory."""

    name: str
    key: Key
    wish: Wish = Wish.ONE
    optional: bool = False
    has_default: bool = False
    passing: Passing = Passing.EITHER
    # Why the annotation cannot be used; such a parameter is a problem at freeze.
    trouble: str | None = None
    # Not annotated at all, and without a default.
    bare: bool = False

    @property
    def is_required_argument(self) -> bool:
        """True when only the caller can fill it, and must."""
        return self.wish is Wish.ARGUMENT and not self.has_default


_RESOLVERS: set[Any] = {ContainerResolverProtocol, BootContainerProtocol}
_SCOPES: set[Any] = {ScopeProtocol}
_WRAPPERS = {
    Factory: Wish.FACTORY,
    AsyncFactory: Wish.ASYNC_FACTORY,
    Lazy: Wish.LAZY,
    list: Wish.ALL,
}
# list[str] and list[Callable[[], None]] are data, not "every str that is bound".
_DATA_MODULES = {"builtins", "collections.abc", "typing"}
# Classes of records, by what makes them so; and classes whose subclasses are data too.
_RECORD_MARKS = (
    *("__dataclass_fields__", "__attrs_attrs__", "__struct_fields__", "__pydantic_fields__"),
    "__total__",
)
_DATA_BASES = {str, bytes, int, float, list, dict, tuple, set, frozenset, Enum}


def injectable_aliases(
    *, resolvers: type[Any] | None = None, scope: type[Any] | None = None
) -> None:
    """Let the concrete container and scope classes be asked for like their protocols."""
    if resolvers is not None:
        _RESOLVERS.add(resolvers)
    if scope is not None:
        _SCOPES.add(scope)


def parameters(
    target: Callable[..., Any], type_arguments: dict[Any, Any] | None = None
) -> tuple[Parameter, ...]:
    """What ``target`` asks for, in order; ``*args`` and ``**kwargs`` are skipped."""
    function = _function(target)
    if function is None:
        return ()
    specs = _specs(function, skip_first=isinstance(target, type))
    annotations, troubles = _annotations(target, function) if specs else ({}, {})
    return tuple(
        _parameter(
            name,
            annotations.get(name, inspect.Parameter.empty),
            troubles.get(name),
            has_default,
            passing,
            type_arguments,
        )
        for name, has_default, passing in specs
    )


def is_service(parameter: Parameter, is_bound: Callable[[Key], bool]) -> bool:
    """Whether the container fills a parameter of a handler that also takes data from its caller.

    What nobody binds is data, unless its type cannot be: a protocol, an abstract class, or a
    class that is neither of the standard library nor a record.
    """
    if parameter.wish is Wish.ARGUMENT or parameter.trouble or parameter.key is None:
        return False
    if parameter.wish not in (Wish.ONE, Wish.ALL) or is_bound(parameter.key):
        return True
    return not parameter.has_default and not _is_data(parameter.key)


def _is_data(key: Key) -> bool:
    """Whether values of the type may come from outside."""
    if isinstance(key, (str, tuple)):
        return False  # a token, or a service by name
    kind = origin_of(key) or key
    if not isinstance(kind, type) or kind.__module__.partition(".")[0] in sys.stdlib_module_names:
        return True
    if any(hasattr(kind, mark) for mark in _RECORD_MARKS):
        return True
    return any(base in _DATA_BASES for base in kind.__mro__)


def key_of(annotation: Any) -> Key:
    """The key an annotation asks for: ``Annotated[T, Named("x")]`` is ``(T, "x")``."""
    if origin_of(annotation) is not Annotated:
        return annotation
    service, *metadata = get_args(annotation)
    for mark in metadata:
        if isinstance(mark, Named):
            return (service, mark.name)
        if isinstance(mark, Inject):
            return mark.token
    return service


def key_with_name(service: Any, name: str | None) -> Key:
    """The key of a service, with or without a name."""
    key = key_of(service)
    return key if name is None else (key, name)


def is_form(annotation: Any) -> bool:
    """True for what asks for more than one service as it is: ``list[T]``, ``T | None``, ..."""
    _, wish, optional = _wish(annotation)
    return optional or wish is not Wish.ONE


def asking(annotation: Any) -> Callable[[Any], Any]:
    """A function that asks for ``annotation`` and returns it."""

    def asked(service: Any) -> Any:
        return service

    asked.__name__ = show(annotation)
    asked.__annotations__ = {"service": annotation}
    return asked


def has_free_variables(key: Key) -> bool:
    """True for ``T``, ``type[T]`` or ``Mapper[T]``: only a generic class filled in can ask so."""
    return isinstance(key, TypeVar) or bool(
        getattr(key, "__parameters__", ()) and origin_of(key) is not None
    )


def type_arguments(key: Key, target: Any) -> dict[Any, Any]:
    """The type variables of ``target`` filled so that it makes ``key``.

    ``Repo[User]`` made by ``class SqlRepo(Repo[T])`` gives ``{T: User}``, whatever the order
    and number of its own variables.
    """
    origin = origin_of(key)
    if not isinstance(origin, type):
        return {}
    spelled = _arguments_in(target, origin) or getattr(origin, "__parameters__", ())
    filled = zip(spelled, get_args(key), strict=False)
    return {variable: argument for variable, argument in filled if isinstance(variable, TypeVar)}


def constructor_site(target: Any) -> tuple[str, int] | None:
    """File and line of a constructor or factory, or of its class where there is none."""
    function = _plain(_function(target))
    code = getattr(function, "__code__", None)
    if code is not None and not _is_generated(function):
        return code.co_filename, code.co_firstlineno
    try:
        _, number = inspect.findsource(target)
    except (OSError, TypeError):
        return None
    return inspect.getsourcefile(target) or "?", number + 1


def _function(target: Any) -> Any:
    """The callable whose signature counts; None for a class without a constructor of its own."""
    if isinstance(target, type):
        return _constructor(target)
    if inspect.isroutine(target) or isinstance(target, partial):
        return target
    return target.__call__  # bound, so that self is gone


def _constructor(cls: Any) -> Any:
    init = cls.__init__
    if getattr(init, "__qualname__", "") == "_no_init_or_replace_init":
        # typing.Protocol among the bases hides the real one until the first instance is made.
        hidden = (vars(base).get("__init__", init) for base in cls.__mro__)
        init = next((found for found in hidden if found is not init), object.__init__)
    if init is not object.__init__:
        return init
    return None if cls.__new__ is object.__new__ else cls.__new__


def _specs(function: Any, *, skip_first: bool) -> list[tuple[str, bool, Passing]]:
    """Name, has default, passing; read from the code object, since inspect costs 10x."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__") or hasattr(function, "__self__"):
        return _slow_specs(function, skip_first=skip_first)
    count = code.co_argcount
    plain = count - len(function.__defaults__ or ())
    specs = [
        (
            name,
            index >= plain,
            Passing.POSITION if index < code.co_posonlyargcount else Passing.EITHER,
        )
        for index, name in enumerate(code.co_varnames[:count])
    ]
    keyword_defaults = function.__kwdefaults__ or {}
    keywords = code.co_varnames[count : count + code.co_kwonlyargcount]
    specs += [(name, name in keyword_defaults, Passing.KEYWORD) for name in keywords]
    return specs[1:] if skip_first else specs


_PASSING = {
    inspect.Parameter.POSITIONAL_ONLY: Passing.POSITION,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: Passing.EITHER,
    inspect.Parameter.KEYWORD_ONLY: Passing.KEYWORD,
}


def _slow_specs(function: Any, *, skip_first: bool) -> list[tuple[str, bool, Passing]]:
    found = [
        (parameter.name, parameter.default is not parameter.empty, _PASSING[parameter.kind])
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in _PASSING
    ]
    return found[1:] if skip_first and not hasattr(function, "__self__") else found


def _plain(function: Any) -> Any:
    """The function at the bottom of partials, wrappers and bound methods."""
    while isinstance(function, partial):
        function = _function(function.func)
    function = inspect.unwrap(function)
    return getattr(function, "__func__", function)


def _annotations(target: Any, function: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Evaluated annotations, and for those that cannot be evaluated what went wrong."""
    function = _plain(function)
    raw: dict[str, Any] = getattr(function, "__annotations__", {})
    if all(isinstance(annotation, type) for annotation in raw.values()):
        return raw, {}
    if not _is_generated(function):
        try:
            return get_type_hints(function, include_extras=True), {}
        except Exception:  # noqa: BLE001, S110 - code of the user: reported below, one by one
            pass
    return _one_by_one(target, function, raw)


def _is_generated(function: Any) -> bool:
    """True for the ``__init__`` that attrs or dataclasses wrote: its code is in no file."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith("<")


def _one_by_one(
    target: Any, function: Any, raw: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    found: dict[str, Any] = {}
    troubles: dict[str, str] = {}
    for name, annotation in raw.items():
        error = None
        for namespace in _namespaces(target, function, name):
            holder = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                found[name] = get_type_hints(holder, namespace, include_extras=True)[name]
                break
            except Exception as failure:  # noqa: BLE001 - see above
                error = error or failure
        else:
            troubles[name] = f"its annotation {annotation!r} cannot be evaluated ({error})"
    return found, troubles


def _namespaces(target: Any, function: Any, name: str) -> Iterator[dict[str, Any]]:
    """Where an annotation may mean something.

    attrs and dataclasses write ``__init__`` for a class, with the fields of base classes from
    other modules: the module of the class that declares a field counts.
    """
    if isinstance(target, type):
        for base in target.__mro__:
            declared = vars(base).get("__annotations__", {})
            if (name in declared or f"_{name}" in declared) and base.__module__ in sys.modules:
                yield vars(sys.modules[base.__module__])
    yield getattr(function, "__globals__", {})


def _parameter(
    name: str,
    annotation: Any,
    trouble: str | None,
    has_default: bool,
    passing: Passing,
    type_arguments: dict[Any, Any] | None,
) -> Parameter:
    if trouble is not None:
        return Parameter(name, None, Wish.ONE, False, has_default, passing, trouble)
    if annotation is inspect.Parameter.empty:
        missing = None if has_default else "it has no annotation"
        return Parameter(
            name, None, Wish.ONE, False, has_default, passing, missing, not has_default
        )
    if isinstance(annotation, InitVar):
        annotation = annotation.type
    if type_arguments:
        annotation = _substitute(annotation, type_arguments)
    key, wish, optional = _wish(annotation)
    return Parameter(name, key, wish, optional, has_default, passing)


def _wish(annotation: Any) -> tuple[Key, Wish, bool]:
    if isinstance(annotation, type) and annotation not in _RESOLVERS and annotation not in _SCOPES:
        return annotation, Wish.ONE, False
    while hasattr(annotation, "__value__"):  # type Mailers = list[Mailer]
        annotation = annotation.__value__
    annotation, optional = _without_none(annotation)
    if origin_of(annotation) is Annotated:
        service, *marks = get_args(annotation)
        service, inside = _without_none(service)
        if RUNTIME_ARGUMENT in marks:
            return service, Wish.ARGUMENT, optional or inside
        return key_of(Annotated[(service, *marks)]), Wish.ONE, optional or inside
    if annotation in _RESOLVERS:
        return annotation, Wish.RESOLVER, optional
    if annotation in _SCOPES:
        return annotation, Wish.SCOPE, optional
    wrapper = _WRAPPERS.get(origin_of(annotation))
    if wrapper is None:
        return annotation, Wish.ONE, optional
    inner = key_of(get_args(annotation)[0])
    if wrapper is Wish.ALL and not _is_service(inner):
        return annotation, Wish.ONE, optional
    return inner, wrapper, optional


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """``T`` and True for ``T | None``."""
    if origin_of(annotation) not in (Union, types.UnionType):
        return annotation, False
    members = [member for member in get_args(annotation) if member is not type(None)]
    optional = len(members) < len(get_args(annotation))
    return (members[0] if len(members) == 1 else annotation), optional


def _is_service(key: Key) -> bool:
    base = origin_of(key) or key
    if isinstance(key, (tuple, str)):
        return True
    return isinstance(base, type) and base.__module__ not in _DATA_MODULES


def _substitute(annotation: Any, type_arguments: dict[Any, Any]) -> Any:
    """Put concrete types for the type variables of an open generic."""
    if isinstance(annotation, TypeVar):
        return type_arguments.get(annotation, annotation)
    free = getattr(annotation, "__parameters__", ())
    if not free or origin_of(annotation) is None:
        return annotation
    return annotation[tuple(type_arguments.get(variable, variable) for variable in free)]


def _arguments_in(target: Any, origin: type[Any]) -> tuple[Any, ...]:
    """How ``target`` writes the arguments of ``origin``: ``(T,)`` for ``class X(Repo[T])``."""
    if not isinstance(target, type):
        return _arguments_returned(target, origin)
    if target is origin:
        return getattr(target, "__parameters__", ())
    for base in getattr(target, "__orig_bases__", ()):
        cls, arguments = origin_of(base) or base, get_args(base)
        if isinstance(cls, type) and origin in cls.__mro__:
            inner = _arguments_in(cls, origin)
            own = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
            return tuple(own.get(variable, variable) for variable in inner)
    return getattr(target, "__parameters__", ())


def _arguments_returned(factory: Any, origin: type[Any]) -> tuple[Any, ...]:
    """The same for a factory, read from its return annotation, inside an iterator or not."""
    function = _function(factory)
    returned = _annotations(factory, function)[0].get("return")
    while returned is not None and origin_of(returned) is not origin:
        returned = next(iter(get_args(returned)), None)
    return get_args(returned)
