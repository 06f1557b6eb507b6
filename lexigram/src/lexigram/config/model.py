"""The configuration of an application: its own settings, and the sections of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import Attribute, evolve, field, frozen
from attrs.validators import gt

from lexigram.config.base import BaseConfig
from lexigram.config.secrets import INTERNAL, doc
from lexigram.config.tree import ConfigTrace

if TYPE_CHECKING:
    from lexigram.config.errors import ConfigIssue

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
        from lexigram.config.sections import read_section

        return read_section(self, name, model)

    def check_sections(self, claimed: Iterable[str]) -> None:
        """Refuse sections that none of the ``claimed`` (dotted) names covers."""
        from lexigram.config.sections import refuse_unclaimed

        refuse_unclaimed(self, claimed)

    def bind_sections(self, models: Mapping[str, type[Any]]) -> LexigramConfig:
        """This configuration with each section structured by its model, absent ones too.

        Unclaimed sections and the problems of all sections are raised together.
        """
        from lexigram.config.sections import bind

        return bind(self, models)

    def to_safe_dict(self) -> dict[str, Any]:
        """All settings and sections as plain data, with secrets as ``***``.

        In a raw section only names tell what is secret; ``bind_sections`` makes the marks of
        the config classes count.
        """
        from lexigram.config.safe import safe

        return {**super().to_safe_dict(), **safe(self.sections)}

    def validate_for_environment(self, env: Environment | None = None) -> list[ConfigIssue]:
        """What is wrong for ``env`` (default: the configured one), sections included."""
        from lexigram.config.errors import ConfigIssue

        env = env or self.env
        issues: list[ConfigIssue] = []
        if self.debug and env is Environment.PRODUCTION:
            suggestion = "set debug: false (or LEX_DEBUG=false)"
            text = "must not be on in production"
            issues.append(ConfigIssue(field="debug", message=text, suggestion=suggestion))
        parts = {"logging": self.logging, "health": self.health, "app": self.app, **self.sections}
        for name, part in parts.items():
            if isinstance(part, BaseConfig):
                found = part.validate_for_environment(env)
                issues += [evolve(issue, field=f"{name}.{issue.field}") for issue in found]
        return issues
