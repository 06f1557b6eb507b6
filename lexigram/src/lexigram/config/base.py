"""The base of every configuration class, and the settings that a class declares."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

from lexigram.config.redact import is_secret_name
from lexigram.config.secrets import INTERNAL, SecretStr
from lexigram.contracts.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from lexigram.config.errors import ConfigIssue
    from lexigram.config.model import Environment


@attrs.frozen(kw_only=True)
class BaseConfig:
    """Settings of one part of an application, as an attrs class.

    A subclass is decorated with ``@attrs.frozen(kw_only=True)`` and names its section::

        @frozen(kw_only=True)
        class MailConfig(BaseConfig):
            config_section: ClassVar[str] = "mail"
            host: str = field(default="localhost", metadata=doc("Where the mail server is."))
            port: int = field(default=25, validator=[ge(1), le(65535)])
            password: str = field(default="", metadata=secret())

    Values are taken strictly: a wrong type, an unknown key or a refused value is an error that
    names its source. ``repr`` and ``to_safe_dict`` never show secrets.
    """

    # Dotted name of the section in files and variables; "" is the root.
    config_section: ClassVar[str] = ""
    # Variables of another system that set one of these settings, as name -> dotted key in the
    # section; the LEX_ variable of the setting wins over its alias.
    env_aliases: ClassVar[Mapping[str, str]] = {}
    # Variables of another system that have no effect here, and why: logged once.
    env_dropped: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # attrs writes a __repr__ with all values unless the class has its own.
        if "__repr__" not in vars(cls):
            cls.__repr__ = BaseConfig.__repr__  # type: ignore[method-assign]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The settings given in code; no file or variable is read."""
        from lexigram.config.loader import config_from

        return config_from(cls, data)

    @classmethod
    def from_yaml(
        cls,
        path: str | Path,
        *,
        profile: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """The section of this class in a YAML file, its profile file and the variables."""
        from lexigram.config.loader import load_config

        return load_config(cls, path=path, profile=profile, env=env)

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Self:
        """The section of this class in ``LEX_SECTION__FIELD`` variables alone."""
        from lexigram.config.loader import config_from_env

        return config_from_env(cls, env)

    def to_safe_dict(self) -> dict[str, Any]:
        """All settings as plain data, with secrets as ``***``."""
        from lexigram.config.safe import safe_fields

        return safe_fields(self)

    def validate_for_environment(self, env: Environment) -> list[ConfigIssue]:
        """What is wrong with these settings in the given environment; override to add checks."""
        return []

    def __repr__(self) -> str:
        from lexigram.config.safe import safe_repr

        return safe_repr(self)


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
