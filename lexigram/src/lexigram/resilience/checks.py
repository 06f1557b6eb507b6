"""Refuses settings that cannot work, with the name of the setting."""

from __future__ import annotations

from lexigram.contracts.core.errors import ConfigurationError


def require(holds: bool, setting: str, value: object, rule: str) -> None:
    """Raise ConfigurationError unless the rule holds."""
    if not holds:
        raise ConfigurationError(
            f"{setting} must be {rule}, not {value!r}", details={setting: value}
        )
