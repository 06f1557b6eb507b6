"""Turn raw settings into config objects, strictly, and say everything that does not fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from lexigram.config.base import Setting, is_config_class, options_of, settings_of, type_text
from lexigram.config.errors import ConfigProblem
from lexigram.config.faults import NOTHING_TO_SHOW, Fault, is_ignored, unknown
from lexigram.config.redact import redact_text, scrub
from lexigram.config.secrets import SecretStr
from lexigram.config.sources import FALSE_WORDS, TRUE_WORDS
from lexigram.config.tree import Broken, ConfigTrace, KeyPath, SecretText, Text, without
from lexigram.contracts.core.errors import ConfigurationError

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")

REQUIRED = "required: "  # how the message of a missing setting begins


def structure(
    model: type[T], value: Any, path: KeyPath, trace: ConfigTrace
) -> tuple[T | None, list[ConfigProblem]]:
    """``value`` as an instance of ``model``, or None and the problems that prevent it.

    ``path`` is where the value stands in the whole configuration.
    """
    try:
        if value == {} and is_config_class(model):
            # All defaults: nothing to convert, so cattrs need not be imported.
            return _defaults(model), []
        return _converter().structure(value, model), []
    except Fault as fault:
        faults = list(fault.under(path))
    ignored = [fault.path for fault in faults if is_ignored(fault, trace)]
    if ignored:
        for place in ignored:
            value = without(value, place[len(path) :])
        return structure(model, value, path, trace)
    # A broken value was reported by the reader of its source.
    return None, [fault.problem(trace) for fault in faults if not isinstance(fault.value, Broken)]


# --- the converter: one strict hook per kind of type ---------------------------------------------


@cache
def _converter() -> Converter:
    from cattrs import Converter

    converter = Converter()
    scalars: dict[Any, Callable[[Any], Any]] = {
        bool: _bool,
        int: _int,
        float: _float,
        str: _str,
        Path: _path,
        SecretStr: _secret_str,
        NoneType: _none,
    }
    for kind, read in scalars.items():
        converter.register_structure_hook(kind, _scalar(kind, read))
    _register(converter, lambda kind: kind is Any or kind is object, _any)
    _register(converter, lambda kind: bool(options_of(kind)), lambda v, kind, _: _option(v, kind))
    converter.register_structure_hook(Enum, _option)
    _register(converter, lambda kind: _origin(kind) in (Union, UnionType), _union)
    _register(converter, lambda kind: _origin(kind) in _SEQUENCES, _sequence)
    _register(converter, _is_mapping, _mapping)
    _register(converter, is_config_class, _instance)
    return converter


def _register(
    converter: Converter,
    predicate: Callable[[Any], bool],
    read: Callable[[Any, Any, Converter], Any],
) -> None:
    converter.register_structure_hook_func(
        predicate, lambda value, kind: read(value, kind, converter)
    )


def _scalar(base: Any, read: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def hook(value: Any, kind: Any) -> Any:
        # cattrs sends subclasses here too: enums of text or numbers, and types made from str.
        if options_of(kind):
            return _option(value, kind)
        return read(value) if kind is base else kind(read(value))

    return hook


def _origin(kind: Any) -> Any:
    return get_origin(kind) or kind


def _wrong(value: Any, kind: Any, more: str = "") -> Fault:
    return Fault(value, f"expected {type_text(kind)}{more}")


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, Text) and value.strip().lower() in TRUE_WORDS | FALSE_WORDS:
        return value.strip().lower() in TRUE_WORDS
    raise Fault(value, "expected true or false")


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, Text) and re.fullmatch(r"\s*[-+]?[0-9]{1,99}\s*", value):
        return int(value)
    raise _wrong(value, int)


def _float(value: Any) -> float:
    if isinstance(value, int | float | Text) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            return float(value)
    raise _wrong(value, float)


def _str(value: Any) -> str:
    if isinstance(value, SecretText):
        return value  # stays marked, so that it is hidden wherever the object is shown
    if isinstance(value, str):
        return str(value)
    quotes = " (put it in quotes)" if isinstance(value, int | float) else ""
    raise _wrong(value, str, quotes)


def _path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(_str(value))


def _secret_str(value: Any) -> SecretStr:
    return value if isinstance(value, SecretStr) else SecretStr(str(_str(value)))


def _none(value: Any) -> None:
    if value is not None:
        raise Fault(value, "expected nothing")


def _any(value: Any, _kind: Any, _converter: Converter) -> Any:
    return str(value) if type(value) is Text else value


def _option(value: Any, kind: Any) -> Any:
    options = get_args(kind) if get_origin(kind) is Literal else tuple(kind)
    for option in options:
        plain = option.value if isinstance(option, Enum) else option
        same = value is option or (value == plain and type(value) is type(plain))
        if same or (isinstance(value, Text) and value == str(plain)):
            return option
    raise Fault(value, f"expected {type_text(kind)}", options=options_of(kind))


def _union(value: Any, kind: Any, converter: Converter) -> Any:
    members = get_args(kind)
    if value is None and NoneType in members:
        return None
    others = [member for member in members if member is not NoneType]
    if NoneType in members and str not in others and isinstance(value, Text) and not value:
        return None  # an empty variable unsets an optional setting
    faults: list[Fault] = []
    for member in others:
        try:
            return converter.structure(value, member)
        except Fault as fault:
            faults.append(fault)
    # What a nested class said is more use than the list of all members.
    nested = [fault for fault in faults if fault.parts]
    if len(faults) == 1:
        raise faults[0]
    raise nested[0] if len(nested) == 1 else _wrong(value, kind)


_SEQUENCES: Mapping[Any, Callable[[list[Any]], Any]] = {
    list: list,
    Sequence: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}


def _sequence(value: Any, kind: Any, converter: Converter) -> Any:
    origin, args = _origin(kind), get_args(kind)
    items = _items(value, kind)
    fixed = origin is tuple and bool(args) and args[-1] is not ...
    if fixed and len(items) != len(args):
        raise _wrong(value, kind, f": {len(args)} items, not {len(items)}")
    kinds = list(args) if fixed else [args[0] if args else Any] * len(items)
    return _SEQUENCES[origin](
        _each(enumerate(items), lambda i, item: converter.structure(item, kinds[i]))
    )


def _items(value: Any, kind: Any) -> list[Any]:
    if isinstance(value, Text):
        if value.lstrip().startswith("["):
            return cast("list[Any]", _json(value, list, kind))
        return [type(value)(part.strip()) for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    raise Fault(_without_text(value), f"expected {type_text(kind)}")


def _is_mapping(kind: Any) -> bool:
    origin = _origin(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _mapping(value: Any, kind: Any, converter: Converter) -> dict[Any, Any]:
    key_kind, item_kind = get_args(kind) or (Any, Any)
    items = _entries(value, kind)

    def entry(key: Any, item: Any) -> tuple[Any, Any]:
        # A wrong key is reported first: it may show what its value was meant to be.
        return _key(key, key_kind, converter), converter.structure(item, item_kind)

    return dict(_each(items.items(), entry))


def _key(key: Any, kind: Any, converter: Converter) -> Any:
    # A key has no type in YAML: 8080 and "8080" are one name.
    return converter.structure(Text(key) if isinstance(key, str) else key, kind)


def _entries(value: Any, kind: Any) -> Mapping[str, Any]:
    if value is None:
        return {}  # a section whose lines are all commented out
    if isinstance(value, Text) and value.lstrip().startswith("{"):
        return cast("Mapping[str, Any]", _json(value, dict, kind))
    if isinstance(value, Mapping):
        return value
    raise Fault(_without_text(value), f"expected a mapping, not {_kind_of(value)}")


def _json(value: Text, shape: type, kind: Any) -> Any:
    import json

    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, shape):
        raise Fault(NOTHING_TO_SHOW, f"expected {type_text(kind)} as JSON")
    return data


def _without_text(value: Any) -> Any:
    # Text in the place of a section may be any of its settings, a password too.
    return NOTHING_TO_SHOW if isinstance(value, str) else value


def _kind_of(value: Any) -> str:
    if isinstance(value, list | str):
        return "a list" if isinstance(value, list) else "text"
    return type(value).__name__


def _each(items: Iterable[tuple[Any, Any]], structure_one: Callable[[Any, Any], Any]) -> list[Any]:
    """Every item structured; the faults of all items together."""
    done: list[Any] = []
    faults: list[Fault] = []
    for key, item in items:
        try:
            done.append(structure_one(key, item))
        except Fault as fault:
            faults += fault.under((key,))
    if faults:
        raise Fault.of(faults)
    return done


# --- config classes ------------------------------------------------------------------------------


def _instance(value: Any, cls: type[Any], converter: Converter) -> Any:
    if isinstance(value, cls):
        return value
    settings = {item.key: item for item in settings_of(cls) if not item.internal}
    entries = _entries(value, cls)
    faults = [
        fault
        for key, item in entries.items()
        if key not in settings
        for fault in unknown(str(key), item, settings).under((key,))
    ]
    given: dict[str, Any] = {}
    for key, setting in settings.items():
        try:
            if key in entries:
                given[key] = _setting(entries[key], setting, converter)
            elif setting.default is None:
                raise _missing(setting)
        except Fault as fault:
            faults += fault.under((key,), secret=setting.secret)
    return _build(cls, given, faults)


def _defaults(cls: type[Any]) -> Any:
    missing = [
        fault
        for setting in settings_of(cls)
        if setting.default is None and not setting.internal
        for fault in _missing(setting).under((setting.key,), secret=setting.secret)
    ]
    return _build(cls, {}, missing)


def _missing(setting: Setting) -> Fault:
    return Fault(NOTHING_TO_SHOW, f"{REQUIRED}{type_text(setting.type)}")


def _setting(value: Any, setting: Setting, converter: Converter) -> Any:
    if isinstance(value, Broken):
        raise Fault(value, "reported before")
    return converter.structure(value, setting.type)


def _build(cls: type, given: dict[str, Any], faults: list[Fault]) -> Any:
    if not faults:
        try:
            return cls(**given)
        except (ValueError, TypeError, ConfigurationError) as error:
            refused = error
        faults = _refusals(cls, given) or [_refusal(refused, given, cls)]
    else:
        faults += _refusals(cls, given)
    raise Fault.of(faults)


def _refusals(cls: type, given: Mapping[str, Any]) -> list[Fault]:
    """What every validator says: the constructor would stop at the first."""
    probe: Any = object.__new__(cls)
    settings = settings_of(cls)
    for setting in settings:
        if setting.key in given:
            object.__setattr__(probe, setting.attribute, given[setting.key])
        elif setting.default is not None:
            object.__setattr__(probe, setting.attribute, setting.default())
    faults: list[Fault] = []
    for setting in settings:
        if setting.key in given:
            faults += _refusal_of(probe, setting, given[setting.key])
    return faults


def _refusal_of(probe: Any, setting: Setting, value: Any) -> Iterator[Fault]:
    try:
        setting.check(probe, value)
    except AttributeError:
        return  # compares with a setting that is itself in the list of problems
    except (ValueError, TypeError, ConfigurationError) as error:
        message = _validator_text(_first(error), setting.attribute, value)
        message = "is not accepted" if setting.secret else redact_text(message)
        fault = Fault(value.value if isinstance(value, Enum) else value, message)
        yield from fault.under((setting.key,), secret=setting.secret)


def _validator_text(text: str, name: str, value: Any) -> str:
    """The text of attrs is "'port' must be >= 1: 0"; name and value are in the problem already."""
    text = text.removeprefix(f"'{name}' ").removesuffix(f": {value}")
    return text.removesuffix(f" (got {value!r})")


def _first(error: Exception) -> str:
    # attrs puts the text first and then the field, the options and the value.
    return str(error.args[0]) if error.args else type(error).__name__


def _refusal(error: Exception, given: Mapping[str, Any], cls: type) -> Fault:
    """What the class itself said, without the secrets it may have quoted."""
    hidden = {setting.key for setting in settings_of(cls) if setting.secret}
    secrets = [str(value) for key, value in given.items() if key in hidden]
    secrets += [value.reveal() for value in given.values() if isinstance(value, SecretStr)]
    return Fault(NOTHING_TO_SHOW, redact_text(scrub(_first(error), secrets)))
