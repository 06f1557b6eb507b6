"""The configuration of an application: its own settings, and the sections of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from attrs import Attribute, evolve, field, frozen
from attrs.validators import gt

from lexigram.config.base import BaseConfig, settings_of
from lexigram.config.errors import ConfigIssue, ConfigProblem, ConfigSourceError
from lexigram.config.faults import unknown_key
from lexigram.config.secrets import INTERNAL, doc
from lexigram.config.structure import structure
from lexigram.config.tree import ConfigTrace, KeyPath

M = TypeVar("M")

# loguru's own levels, beside those of the standard library.
LEVELS: Mapping[str, int] = {"TRACE": 5, "SUCCESS": 25}


class Environment(StrEnum):
    """Where an application runs; checks differ by it."""

    DEVELOPMENT = "development"
    STAGING = "staging"
    PRODUCTION = "production"
    TEST = "test"


def level_number(level: str) -> int:
    """The number of a log level given as a name or a number; ValueError for anything else."""
    import logging

    name = level.upper()
    known = {**logging.getLevelNamesMapping(), **LEVELS}
    if name in known:
        return known[name]
    if name.isdigit():
        return int(name)
    raise ValueError(f"is not a log level: one of {', '.join(sorted(known))}, or a number")


def _is_level(_instance: object, _attribute: Attribute[str], value: str) -> None:
    level_number(value)


def _are_levels(_instance: object, _attribute: Attribute[Any], value: Mapping[str, str]) -> None:
    for name, level in value.items():
        try:
            level_number(level)
        except ValueError as error:
            raise ValueError(f"{name}: {level!r} {error}") from None


@frozen(kw_only=True)
class LoggingConfig(BaseConfig):
    """What is logged, and in which form."""

    level: str = field(
        default="INFO", validator=_is_level, metadata=doc("Least level that is shown.")
    )
    json_format: bool = field(
        default=False, metadata=doc("One JSON object a line instead of text for people.")
    )
    levels: Mapping[str, str] = field(
        factory=dict,
        validator=_are_levels,
        metadata=doc("Level by logger name, for the logger and all below it."),
    )
    redact: tuple[str, ...] = field(
        default=(), metadata=doc("Names of further fields that are never shown.")
    )


@frozen(kw_only=True)
class HealthConfig(BaseConfig):
    """What health answers tell."""

    include_details: bool = field(
        default=True, metadata=doc("false: only the status of each component is given.")
    )


@frozen(kw_only=True)
class AppConfig(BaseConfig):
    """Limits of the application's life."""

    boot_timeout: float = field(
        default=60.0,
        validator=gt(0),
        metadata=doc("Seconds a provider may take to boot, unless it says otherwise."),
    )
    shutdown_timeout: float = field(
        default=30.0, validator=gt(0), metadata=doc("Seconds the whole shutdown may take.")
    )
    health_check_timeout: float = field(
        default=5.0, validator=gt(0), metadata=doc("Seconds one health check may take.")
    )


@frozen(kw_only=True)
class LexigramConfig(BaseConfig):
    """Settings every application has; other sections stay raw until a part asks for them."""

    app_name: str = field(default="lexigram-app", metadata=doc("Name of the service in traces."))
    debug: bool = field(default=False, metadata=doc("More checks and output; not in production."))
    env: Environment = field(
        default=Environment.DEVELOPMENT, metadata=doc("Where the application runs.")
    )
    logging: LoggingConfig = field(factory=LoggingConfig)
    health: HealthConfig = field(factory=HealthConfig)
    app: AppConfig = field(factory=AppConfig)
    # Every other section by name: raw data, or the config object of the part it belongs to.
    sections: Mapping[str, Any] = field(factory=dict, metadata={INTERNAL: True})
    # Where each value came from.
    trace: ConfigTrace = field(factory=ConfigTrace, eq=False, metadata={INTERNAL: True})

    def get_section(self, name: str, model: type[M]) -> M:
        """The section ``name`` (dotted for a part of one) as ``model``; absent: its defaults."""
        self.trace.models[name] = model
        found, problems = _structure_section(self, name, model)
        if self.trace.ignored:
            from lexigram.config.sources import log_ignored

            log_ignored(self.trace)
        if problems:
            raise ConfigSourceError(problems)
        assert found is not None
        return found

    def check_sections(self, claimed: Iterable[str]) -> None:
        """Refuse sections that none of the ``claimed`` (dotted) names covers."""
        problems = _find_unclaimed(self, claimed)
        if problems:
            raise ConfigSourceError(problems)

    def bind_sections(self, models: Mapping[str, type[Any]]) -> LexigramConfig:
        """This configuration with each section structured by its model, absent ones too.

        Unclaimed sections and the problems of all sections are raised together.
        """
        self.trace.models.update(models)
        problems = _find_unclaimed(self, models)
        sections = {name: one for name, one in self.sections.items() if not self._is_ignored(name)}
        for name, model in models.items():
            found, wrong = _structure_section(self, name, model)
            problems += wrong
            # A dotted name is a part of a section that stays raw.
            if len(section_path(name)) == 1 and name not in root_fields(type(self)):
                sections[name] = found
        if problems:
            raise ConfigSourceError(problems)
        return evolve(self, sections=sections)

    def _is_ignored(self, section: str) -> bool:
        names = self.trace.variables_of((section,))
        return bool(names) and self.trace.ignored.issuperset(names)

    def to_safe_dict(self) -> dict[str, Any]:
        """All settings and sections as plain data, with secrets as ``***``.

        A raw section hides settings by their names; after ``bind_sections`` also those that
        the config classes mark as secret.
        """
        from lexigram.config.safe import safe

        return {**super().to_safe_dict(), **safe(self.sections)}

    def validate_for_environment(self, env: Environment | None = None) -> list[ConfigIssue]:
        """What is wrong for ``env`` (default: the configured one), sections included."""
        env = env or self.env
        issues: list[ConfigIssue] = []
        if self.debug and env is Environment.PRODUCTION:
            suggestion = "set debug: false (or LEX_DEBUG=false)"
            text = "must not be on in production"
            issues.append(ConfigIssue(field="debug", message=text, suggestion=suggestion))
        issues += [_build_ignored_issue(name) for name in sorted(self.trace.ignored)]
        parts = {"logging": self.logging, "health": self.health, "app": self.app, **self.sections}
        for name, part in parts.items():
            if isinstance(part, BaseConfig):
                found = part.validate_for_environment(env)
                issues += [evolve(issue, field=f"{name}.{issue.field}") for issue in found]
        return issues


def _build_ignored_issue(variable: str) -> ConfigIssue:
    text = "is an unknown variable, which is ignored"
    suggestion = "correct its name, or leave it to the program that reads it"
    return ConfigIssue(field=variable, message=text, severity="warning", suggestion=suggestion)


def root_fields(model: type[LexigramConfig]) -> tuple[str, ...]:
    """The names a root configuration class keeps for itself; all others are sections."""
    return tuple(setting.key for setting in settings_of(model) if not setting.internal)


def section_path(section: str) -> KeyPath:
    """The key path of a dotted section name; the empty name is the root."""
    return tuple(section.split(".")) if section else ()


def dig(data: Any, path: KeyPath) -> Any:
    """The value at ``path``, an empty mapping where there is none, or what bars the way."""
    for part in path:
        if not isinstance(data, Mapping):
            break
        data = data.get(part)
    return {} if data is None else data


def _structure_section(
    config: LexigramConfig, name: str, model: type[M]
) -> tuple[M | None, list[ConfigProblem]]:
    path = section_path(name)
    own = root_fields(type(config))
    data: Any = {path[0]: getattr(config, name)} if name in own else config.sections
    return structure(model, dig(data, path), path, config.trace)


def _find_unclaimed(config: LexigramConfig, claimed: Iterable[str]) -> list[ConfigProblem]:
    names = frozenset(section_path(name) for name in claimed)
    known = names | {(name,) for name in root_fields(type(config))}
    return list(_find_uncovered(config.sections, known, config.trace, ()))


def _find_uncovered(
    data: Mapping[str, Any], names: frozenset[KeyPath], trace: ConfigTrace, path: KeyPath
) -> Iterator[ConfigProblem]:
    depth = len(path)
    known = {str(name[depth]) for name in names if name[:depth] == path and len(name) > depth}
    for key, value in data.items():
        here = (*path, key)
        if here in names:
            continue
        if key in known and isinstance(value, Mapping):
            yield from _find_uncovered(value, names, trace, here)
        elif (problem := unknown_key(here, value, known, trace)) is not None:
            yield problem
