"""The base of every configuration class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from attrs import frozen

if TYPE_CHECKING:
    from pathlib import Path

    from lexigram.config.errors import ConfigIssue
    from lexigram.config.model import Environment


@frozen(kw_only=True)
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
    # Variables of another system that have no effect here, and why: told once, in the log.
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
