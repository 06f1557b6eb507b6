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
from lexigram.config.model import LexigramConfig, dig, root_fields, section_path
from lexigram.config.sources import (
    DEFAULT_FILE,
    RESERVED_VARIABLES,
    environment,
    log_ignored,
    read_aliases,
    read_environment,
    read_yaml,
    variable_path,
)
from lexigram.config.structure import REQUIRED, structure
from lexigram.config.tree import ENV_PREFIX, ConfigTrace, ConfigTree, KeyPath, Text, key_text

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
    aliases, known = _read_aliases(variables, {model.config_section: model, **(sections or {})})
    tree.overlay(aliases)
    tree.overlay(read_environment(variables, section, known=known))
    config = _build(model, tree, section, sections)
    log_ignored(tree.trace)
    return config


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
    tree, known = _read_aliases(variables, {model.config_section: model})
    tree.overlay(read_environment(variables, section, known=known))
    config = _build(model, tree, section)
    log_ignored(tree.trace)
    return config


def _read_aliases(
    env: Mapping[str, str], models: Mapping[str, type[Any]]
) -> tuple[ConfigTree, set[str]]:
    """What variables of other systems say about the sections that are read, and their names."""
    aliases: dict[str, KeyPath] = {}
    dropped: dict[str, str] = {}
    for name, model in models.items():
        keys: Mapping[str, str] = getattr(model, "env_aliases", {})
        aliases |= {alias: (*section_path(name), *key.split(".")) for alias, key in keys.items()}
        dropped |= getattr(model, "env_dropped", {})
    return read_aliases(env, aliases, dropped), {*aliases, *dropped}


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
    tree.trace.models[model.config_section] = model
    inside = key_text(section)
    roots = {*tree.trace.models, *(sections or ()), *(str(part) for part in section[:1])}
    problems = [
        problem
        for problem in tree.problems
        if (not problem.key or problem.key.startswith(inside))
        and not _is_foreign(problem, roots, tree.trace)
    ]
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


def _is_foreign(problem: ConfigProblem, roots: set[str], trace: ConfigTrace) -> bool:
    """True for a variable that is no name of a setting and resembles no section: it is ignored."""
    if not problem.source.startswith(ENV_PREFIX):
        return False
    first = next(filter(None, variable_path(problem.source)), "")
    known = {*roots, *root_fields(LexigramConfig), *_RESERVED_KEYS} - {""}
    if nearest(first, known) is not None:
        return False
    trace.ignored.add(problem.source)
    return True


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
    tree.trace.models.update(models or {})
    raw: dict[str, Any] = {}
    for key, value in rest.items():
        content = _section(value)
        if content is None:
            names = known | _RESERVED_KEYS if isinstance(value, Text) else known
            problem = unknown_key((key,), value, names, tree.trace)
            problems += [] if problem is None else [problem]
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
        except (ValueError, RecursionError):
            return None
    return None if isinstance(value, str | int | float | list) else value
