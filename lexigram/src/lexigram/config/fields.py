"""What a config class declares: its settings with type, default, text and secrecy."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import attrs

from lexigram.config.redact import is_secret_name
from lexigram.config.secrets import INTERNAL, SecretStr
from lexigram.contracts.core.errors import ConfigurationError


@attrs.frozen(kw_only=True)
class Setting:
    """One field of a config class."""

    # The name in files; differs from ``attribute`` only for private attrs fields.
    key: str
    attribute: str
    type: Any
    # Makes the default; None when the setting is required.
    default: Callable[[], Any] | None
    doc: str
    secret: bool
    internal: bool
    # Called with the instance and the value; raises when the value is not accepted.
    check: Callable[[Any, Any], None]


def is_config_class(cls: Any) -> bool:
    """True for attrs classes and dataclasses, which structure from mappings."""
    return isinstance(cls, type) and (attrs.has(cls) or dataclasses.is_dataclass(cls))


def settings_of(cls: type[Any]) -> tuple[Setting, ...]:
    """The settings a class declares, in order."""
    known: Any = cls  # mypy takes a class with fields that cannot be hashed for unhashable itself
    return _settings_of(known)


@cache
def _settings_of(cls: Any) -> tuple[Setting, ...]:
    hints = _hints(cls)
    if attrs.has(cls):
        _refuse_undecorated(cls, hints)
        return tuple(_from_attrs(item, hints) for item in attrs.fields(cls) if item.init)
    return tuple(_from_dataclass(item, hints) for item in dataclasses.fields(cls) if item.init)


def type_text(kind: Any) -> str:
    """A type as an error message or a table names it."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_text(args[0])
    if origin in (Union, types.UnionType):
        return " or ".join("nothing" if arg is type(None) else type_text(arg) for arg in args)
    if options_of(kind):
        return f"one of {', '.join(options_of(kind))}"
    if is_config_class(kind) or _is_subclass(origin or kind, Mapping):
        return "a mapping"
    if origin in (list, tuple, set, frozenset):
        items = dict.fromkeys(type_text(arg) for arg in args if arg is not ...)
        return f"a list of {' and '.join(items)}"
    if kind is SecretStr:
        return "str"
    return getattr(kind, "__name__", str(kind))


def options_of(kind: Any) -> list[str]:
    """The values an enum or Literal accepts, as text; empty for other types."""
    if get_origin(kind) is Literal:
        return [str(arg) for arg in get_args(kind)]
    return [str(member.value) for member in kind] if _is_subclass(kind, Enum) else []


def _hints(cls: type[Any]) -> dict[str, Any]:
    try:
        return get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise ConfigurationError(
            f"{cls.__module__}.{cls.__qualname__} is annotated with {error.name!r},"
            " which does not exist at run time",
            hint=f"import {error.name} outside `if TYPE_CHECKING:` in {cls.__module__}",
        ) from error


def _refuse_undecorated(cls: type[Any], hints: Mapping[str, Any]) -> None:
    # attrs.has() is also true for a bare subclass, whose own annotations would be ignored.
    own = vars(cls).get("__annotations__", {})
    fields = [name for name in own if get_origin(hints[name]) is not ClassVar]
    if fields and "__attrs_attrs__" not in vars(cls):
        raise ConfigurationError(
            f"{cls.__module__}.{cls.__qualname__} declares settings but is not an attrs class",
            hint="decorate it with @attrs.frozen(kw_only=True)",
        )


def _from_attrs(item: attrs.Attribute[Any], hints: Mapping[str, Any]) -> Setting:
    def check(instance: Any, value: Any) -> None:
        if item.validator is not None:
            item.validator(instance, item, value)

    kind = hints.get(item.name, Any)
    return Setting(
        key=item.alias or item.name,
        attribute=item.name,
        type=kind,
        default=_default_of(item.default),
        doc=item.metadata.get("doc", ""),
        secret=_is_secret(item.name, kind, item.metadata),
        internal=INTERNAL in item.metadata,
        check=check,
    )


def _default_of(default: Any) -> Callable[[], Any] | None:
    if default is attrs.NOTHING:
        return None
    if not isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return lambda: default
    # A default computed from other fields has no value of its own to show.
    return (lambda: None) if default.takes_self else default.factory


def _from_dataclass(item: dataclasses.Field[Any], hints: Mapping[str, Any]) -> Setting:
    default: Callable[[], Any] | None = None
    if item.default_factory is not dataclasses.MISSING:
        default = item.default_factory
    elif item.default is not dataclasses.MISSING:
        default = lambda: item.default  # noqa: E731 - a def would shadow the two lines above
    return Setting(
        key=item.name,
        attribute=item.name,
        type=hints[item.name],
        default=default,
        doc=item.metadata.get("doc", ""),
        secret=_is_secret(item.name, hints[item.name], item.metadata),
        internal=False,
        check=lambda _instance, _value: None,
    )


def _is_secret(name: str, kind: Any, metadata: Mapping[Any, Any]) -> bool:
    return bool(metadata.get("secret")) or is_secret_name(name) or _mentions_secret(kind)


def _mentions_secret(kind: Any) -> bool:
    return kind is SecretStr or any(_mentions_secret(arg) for arg in get_args(kind))


def _is_subclass(kind: Any, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)
