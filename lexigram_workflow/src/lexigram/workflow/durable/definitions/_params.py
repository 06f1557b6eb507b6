"""Check the parameters of a step against what its handler takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import attrs
from attrs import frozen

from lexigram.config import ConfigProblem, ConfigTrace
from lexigram.config.structure import REQUIRED, structure

# What handlers of steps and events get by name without being a parameter.
GIVEN: Final = frozenset(
    {"run_step", "workflow_run", "doc", "step_params", "ctx", "event", "run_group", "plan"}
)
# Parameters that every run has: names that a step need not give.
RUN_PARAMS: Final = frozenset(
    {"workflow_id", "param_id", "source", "uri", "batch_id", "doc_hash", "force"}
)
_SCALARS: Final = (str, int, float, bool)
# The type of a parameter that has none, or that is a service of the container.
_UNJUDGED: Any = Any
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@frozen(kw_only=True)
class ParamModel:
    """The parameters that a handler takes."""

    # an attrs class or a dataclass
    model: type[Any]
    names: frozenset[str]
    # takes others as well and looks at them itself
    is_open: bool = False


def check_params(
    function: Callable[..., Any],
    params: Mapping[str, Any],
    path: tuple[str | int, ...],
    trace: ConfigTrace,
    *,
    is_partial: bool = False,
    besides: Collection[str] = (),
) -> list[ConfigProblem]:
    """What is wrong with the parameters; ``is_partial`` lets others come from elsewhere.

    The handler does not take those of ``besides``; they are for the step's own use.
    """
    takes = param_model(function)
    others = params.keys() if takes.is_open else besides
    given = {k: v for k, v in params.items() if k in takes.names or k not in others}
    _, problems = structure(takes.model, given, path, trace)
    if is_partial:
        problems = [one for one in problems if not one.message.startswith(REQUIRED)]
    return problems


def with_defaults(function: Callable[..., Any], params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters, and the defaults of the handler for those that are not given."""
    model = param_model(function).model
    defaults = {
        item.name: item.default
        for item in (attrs.fields(model) if attrs.has(model) else ())
        if isinstance(item.default, _SCALARS)
    }
    return {**defaults, **params}


@lru_cache(maxsize=1024)
def param_model(function: Callable[..., Any]) -> ParamModel:
    """The class hung on the handler by ``@step_params``, else one made of its signature."""
    model = getattr(function, "__step_params__", None)
    if model is not None:
        names = attrs.fields_dict(model) if attrs.has(model) else model.__dataclass_fields__
        return ParamModel(model=model, names=frozenset(names))
    signature = inspect.signature(function)
    hints = _hints(function)
    parameters = signature.parameters.values()
    is_open = any(p.kind in _VARIABLE or p.name == "step_params" for p in parameters)
    fields = {
        p.name: _field(p, hints.get(p.name))
        for p in parameters
        if p.kind not in _VARIABLE and p.name not in GIVEN
    }
    made = attrs.make_class(
        f"Parameters of {getattr(function, '__name__', 'a handler')}", fields, kw_only=True
    )
    return ParamModel(model=made, names=frozenset(fields), is_open=is_open)


def _field(parameter: inspect.Parameter, hint: Any) -> Any:
    if not _is_plain(hint):
        return attrs.field(default=None, type=_UNJUDGED)
    if parameter.default is not inspect.Parameter.empty:
        return attrs.field(default=parameter.default, type=hint)
    if parameter.name in RUN_PARAMS:
        return attrs.field(default=None, type=hint)
    return attrs.field(type=hint)


def _is_plain(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return all(_is_plain(part) for part in get_args(hint))
    if get_origin(hint) is Literal or hint in (*_SCALARS, NoneType):
        return True
    return isinstance(hint, type) and issubclass(hint, Enum)


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        return {}  # names that only type checkers import: those parameters are not judged
