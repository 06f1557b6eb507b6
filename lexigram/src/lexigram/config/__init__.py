"""Configuration: attrs classes filled strictly from YAML files and LEX_ variables."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.config.base import BaseConfig
    from lexigram.config.describe import ConfigValue, EnvVariable, env_variables, explain_values
    from lexigram.config.errors import ConfigIssue, ConfigProblem, ConfigSourceError
    from lexigram.config.loader import load_config
    from lexigram.config.model import (
        AppConfig,
        Environment,
        HealthConfig,
        LexigramConfig,
        LoggingConfig,
    )
    from lexigram.config.redact import redact_text
    from lexigram.config.secrets import SecretStr, doc, secret
    from lexigram.config.sources import RESERVED_VARIABLES, flag
    from lexigram.config.tree import ConfigTrace
    from lexigram.contracts.core.errors import ConfigurationError
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.config.base": ["BaseConfig"],
            "lexigram.config.describe": [
                "ConfigValue",
                "EnvVariable",
                "env_variables",
                "explain_values",
            ],
            "lexigram.config.errors": ["ConfigIssue", "ConfigProblem", "ConfigSourceError"],
            "lexigram.config.loader": ["load_config"],
            "lexigram.config.model": [
                "AppConfig",
                "Environment",
                "HealthConfig",
                "LexigramConfig",
                "LoggingConfig",
            ],
            "lexigram.config.redact": ["redact_text"],
            "lexigram.config.secrets": ["SecretStr", "doc", "secret"],
            "lexigram.config.sources": ["RESERVED_VARIABLES", "flag"],
            "lexigram.config.tree": ["ConfigTrace"],
            "lexigram.contracts.core.errors": ["ConfigurationError"],
        },
    )

__all__ = [
    "RESERVED_VARIABLES",
    "AppConfig",
    "BaseConfig",
    "ConfigIssue",
    "ConfigProblem",
    "ConfigSourceError",
    "ConfigTrace",
    "ConfigValue",
    "ConfigurationError",
    "EnvVariable",
    "Environment",
    "HealthConfig",
    "LexigramConfig",
    "LoggingConfig",
    "SecretStr",
    "doc",
    "env_variables",
    "explain_values",
    "flag",
    "load_config",
    "redact_text",
    "secret",
]
