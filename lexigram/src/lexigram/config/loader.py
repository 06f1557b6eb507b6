"""Put the sources of a configuration together, lowest first, and build the config object.

defaults < application.yaml < application.{profile}.yaml < aliases < LEX_SECTION__FIELD < explicit object
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

from attrs import evolve

from lexigram.config.base import BaseConfig
from lexigram.config.errors import ConfigProblem, ConfigSourceError
from lexigram.config.faults import nearest, unknown_key
from lexigram.config.model import LexigramConfig
from lexigram.config.sections import root_fields
from lexigram.config.sources import (
    DEFAULT_FILE,
    RESERVED_VARIABLES,
    environment,
    read_aliases,
    read_environment,
    read_yaml,
    variable_path,
)
from lexigram.config.structure import REQUIRED, structure
from lexigram.config.tree import ConfigTree, KeyPath, Text, dig, key_text, section_path

C = TypeVar("C", bound=BaseConfig)

# A misspelt LEX_PROFILE looks like a setting of the root.
_RESERVED_KEYS = {variable_path(name)[0] for name in RESERVED_VARIABLES}


@overload
def load_config(
    *,
    path: str | Path | None = None,
    profile: str | None = None,
    base_path: str | Path = ".",
    env: Mapping[str, str] | None = None,
    sections: Mapping[str, type[Any]] | None = None,
) -> LexigramConfig: ...


@overload
def load_config(
    model: type[C],
    *,
    path: str | Path | None = None,
    profile: str | None = None,
    base_path: str | Path = ".",
    env: Mapping[str, str] | None = None,
    sections: Mapping[str, type[Any]] | None = None,
) -> C: ...


def load_config(
    model: type[Any] = LexigramConfig,
    *,
    path: str | Path | None = None,
    profile: str | None = None,
    base_path: str | Path = ".",
    env: Mapping[str, str] | None = None,
    sections: Mapping[str, type[Any]] | None = None,
) -> Any:
    """Read files below ``base_path`` and the variables into ``model``.

    ``path``: a file that must exist; without it application.yaml is read if it is there.
    ``profile``: its file (application.{profile}.yaml) must exist; default: LEX_PROFILE.
    ``env``: the variables to use instead of those of the process.
    ``sections``: for a LexigramConfig, the class of every other section; then sections nobody
    claims are refused too, and the problems of all sections come in the same error.
    """
    variables = environment(env)
    section = section_path(model.config_section)
    file = Path(base_path) / (path or DEFAULT_FILE)
    tree = read_yaml(file, variables, (lambda: _not_found(file)) if path else None)
    tree.overlay(_read_profile(file, profile, variables))
    tree.overlay(_aliased(variables, {model.config_section: model, **(sections or {})}))
    tree.overlay(read_environment(variables, section))
    return _build(model, tree, section, sections)


def config_from(model: type[C], data: Mapping[str, Any]) -> C:
    """The config object of settings given in code."""
    section = section_path(model.config_section)
    nested: Any = data
    for part in reversed(section):
        nested = {part: nested}
    return _build(model, ConfigTree.of(nested, "given value"), section)


def config_from_env(model: type[C], env: Mapping[str, str] | None) -> C:
    """The config object of variables alone."""
    section = section_path(model.config_section)
    variables = environment(env)
    tree = _aliased(variables, {model.config_section: model})
    tree.overlay(read_environment(variables, section))
    return _build(model, tree, section)


def _aliased(env: Mapping[str, str], models: Mapping[str, type[Any]]) -> ConfigTree:
    """What variables of other systems say about the sections that are read."""
    aliases: dict[str, KeyPath] = {}
    dropped: dict[str, str] = {}
    for section, model in models.items():
        keys: Mapping[str, str] = getattr(model, "env_aliases", {})
        aliases |= {name: (*section_path(section), *key.split(".")) for name, key in keys.items()}
        dropped |= getattr(model, "env_dropped", {})
    return read_aliases(env, aliases, dropped)


def _not_found(file: Path) -> ConfigProblem:
    there = [str(found) for found in file.parent.glob("*.y*ml")]
    return ConfigProblem(
        source=str(file), message="file not found", suggestion=nearest(str(file), there)
    )


def _read_profile(file: Path, profile: str | None, env: Mapping[str, str]) -> ConfigTree:
    asked_by = "the caller" if profile else "LEX_PROFILE"
    profile = profile or env.get("LEX_PROFILE")
    if not profile:
        return ConfigTree()
    overlay = file.with_name(f"{file.stem}.{profile.replace('/', '_')}{file.suffix}")

    def missing() -> ConfigProblem:
        there = [found.name for found in file.parent.glob(f"{file.stem}.*{file.suffix}")]
        profiles = [name[len(file.stem) + 1 : -len(file.suffix)] for name in there]
        return ConfigProblem(
            source=str(overlay),
            message=f"file not found: {asked_by} asks for the profile {profile!r}",
            suggestion=nearest(profile, [name for name in profiles if name]),
        )

    return read_yaml(overlay, env, missing)


def _build(
    model: type[C],
    tree: ConfigTree,
    section: KeyPath,
    sections: Mapping[str, type[Any]] | None = None,
) -> C:
    inside = key_text(section)
    problems = [p for p in tree.problems if not p.key or p.key.startswith(inside)]
    # A file that could not be read is no reason to call its settings missing.
    unread = any(not problem.key for problem in problems)
    data = dig(tree.data, section)
    bound: dict[str, Any] = {}
    if issubclass(model, LexigramConfig):
        data, bound = _split(model, tree, problems, sections)
    config, wrong = structure(model, data, section, tree.trace)
    problems += [p for p in wrong if not (unread and p.message.startswith(REQUIRED))]
    if problems:
        raise ConfigSourceError(problems)
    assert config is not None
    return evolve(config, **bound)


def _split(
    model: type[LexigramConfig],
    tree: ConfigTree,
    problems: list[ConfigProblem],
    models: Mapping[str, type[Any]] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the root itself, and the fields that hold everything else."""
    own = root_fields(model)
    rest = {key: value for key, value in tree.data.items() if key not in own}
    known = {*own, *(models or ())}
    raw: dict[str, Any] = {}
    for key, value in rest.items():
        content = _section(value)
        if content is None:
            names = known | _RESERVED_KEYS if isinstance(value, Text) else known
            problems.append(unknown_key((key,), value, names, tree.trace))
        else:
            raw[key] = content
    holder = LexigramConfig(sections=raw, trace=tree.trace)
    if models is not None:
        try:
            holder = holder.bind_sections(models)
        except ConfigSourceError as error:
            problems += error.problems
    settings = {key: value for key, value in tree.data.items() if key in own}
    return settings, {"sections": holder.sections, "trace": tree.trace}


def _section(value: Any) -> Any:
    """What a root key holds if it can be a section, else None: a lone scalar is a typing error."""
    if value is None:
        return {}
    if isinstance(value, Text) and value.lstrip().startswith("{"):
        import json

        try:
            return json.loads(value)
        except ValueError:
            return None
    return None if isinstance(value, str | int | float | list) else value
