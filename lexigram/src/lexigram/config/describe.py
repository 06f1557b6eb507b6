"""List the settings of config classes and the values of a configuration, for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from attrs import frozen

from lexigram.config.base import is_config_class, settings_of, type_text
from lexigram.config.model import LexigramConfig, section_path
from lexigram.config.safe import safe
from lexigram.config.tree import KeyPath, key_text, variable_name


@frozen(kw_only=True)
class EnvVariable:
    """A variable that sets one setting."""

    name: str
    key: str
    type: str
    # As it may be shown; None when the setting is required.
    default: Any
    required: bool
    secret: bool
    doc: str


@frozen(kw_only=True)
class ConfigValue:
    """One value in effect, as it may be shown, and where it came from."""

    key: str
    value: Any
    source: str


def env_variables(model: type[Any], section: str | None = None) -> list[EnvVariable]:
    """Every variable that ``model`` reads; ``section`` defaults to the class's own."""
    name = getattr(model, "config_section", "") if section is None else section
    return list(_variables(model, section_path(name), ()))


def explain_values(config: LexigramConfig) -> list[ConfigValue]:
    """Every value of a configuration with its source, in order, secrets hidden."""
    return [
        ConfigValue(key=key_text(path), value=value, source=config.trace.source_of(path))
        for path, value in _flat(config.to_safe_dict(), ())
    ]


def _variables(model: type[Any], path: KeyPath, above: tuple[Any, ...]) -> Iterator[EnvVariable]:
    for setting in settings_of(model):
        here = (*path, setting.key)
        nested = _find_config_class(setting.type)
        if setting.internal or (nested and nested[0] in (*above, model)):
            continue
        if nested:
            yield from _variables(nested[0], (*here, *nested[1]), (*above, model))
            continue
        default = setting.default() if setting.default else None
        yield EnvVariable(
            name=variable_name(here),
            key=key_text(here),
            type=type_text(setting.type),
            default=safe(default, secret=setting.secret),
            required=setting.default is None,
            secret=setting.secret,
            doc=setting.doc,
        )


def _find_config_class(kind: Any) -> tuple[type[Any], KeyPath] | None:
    """The config class inside a type, with the key parts that lead to it."""
    if is_config_class(kind):
        return kind, ()
    origin = get_origin(kind)
    steps: KeyPath = ()
    if isinstance(origin, type) and issubclass(origin, Mapping):
        steps = ("<key>",)
    elif isinstance(origin, type) and issubclass(origin, Sequence):
        steps = ("<n>",)
    for arg in get_args(kind):
        inner = _find_config_class(arg)
        if inner:
            return inner[0], (*steps, *inner[1])
    return None


def _flat(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    if not items or not value:
        yield path, value
    for key, item in items:
        yield from _flat(item, (*path, key))
