"""The sections of a configuration: find them, structure them, refuse those nobody reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from attrs import evolve

from lexigram.config.errors import ConfigProblem, ConfigSourceError
from lexigram.config.faults import unknown_key
from lexigram.config.fields import settings_of
from lexigram.config.model import LexigramConfig
from lexigram.config.structure import structure
from lexigram.config.tree import ConfigTrace, KeyPath, dig, section_path

M = TypeVar("M")


def root_fields(model: type[LexigramConfig]) -> tuple[str, ...]:
    """The names a root configuration class keeps for itself; all others are sections."""
    return tuple(setting.key for setting in settings_of(model) if not setting.internal)


def read_section(config: LexigramConfig, name: str, model: type[M]) -> M:
    """One section as an instance of ``model``."""
    found, problems = _structure(config, name, model)
    if problems:
        raise ConfigSourceError(problems)
    assert found is not None
    return found


def refuse_unclaimed(config: LexigramConfig, claimed: Iterable[str]) -> None:
    """Raise when a section is covered by none of the claimed names."""
    problems = _unclaimed(config, claimed)
    if problems:
        raise ConfigSourceError(problems)


def bind(config: LexigramConfig, models: Mapping[str, type[Any]]) -> LexigramConfig:
    """The configuration with its sections structured, or all their problems raised together."""
    problems = _unclaimed(config, models)
    bound = dict(config.sections)
    for name, model in models.items():
        found, wrong = _structure(config, name, model)
        problems += wrong
        # A dotted name is a part of a section that stays raw.
        if len(section_path(name)) == 1 and name not in root_fields(type(config)):
            bound[name] = found
    if problems:
        raise ConfigSourceError(problems)
    return evolve(config, sections=bound)


def _structure(
    config: LexigramConfig, name: str, model: type[M]
) -> tuple[M | None, list[ConfigProblem]]:
    path = section_path(name)
    own = root_fields(type(config))
    data: Any = {path[0]: getattr(config, name)} if name in own else config.sections
    return structure(model, dig(data, path), path, config.trace)


def _unclaimed(config: LexigramConfig, claimed: Iterable[str]) -> list[ConfigProblem]:
    names = frozenset(section_path(name) for name in claimed)
    known = names | {(name,) for name in root_fields(type(config))}
    return list(_uncovered(config.sections, known, config.trace, ()))


def _uncovered(
    data: Mapping[str, Any], names: frozenset[KeyPath], trace: ConfigTrace, path: KeyPath
) -> Iterator[ConfigProblem]:
    depth = len(path)
    known = {str(name[depth]) for name in names if name[:depth] == path and len(name) > depth}
    for key, value in data.items():
        here = (*path, key)
        if here in names:
            continue
        if key in known and isinstance(value, Mapping):
            yield from _uncovered(value, names, trace, here)
        else:
            yield unknown_key(here, value, known, trace)
