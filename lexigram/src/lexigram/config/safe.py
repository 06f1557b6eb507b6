"""Show config objects and raw sections with every secret hidden."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

from lexigram.config.base import is_config_class, settings_of
from lexigram.config.redact import is_secret_name, mask, mask_url
from lexigram.config.secrets import SecretStr
from lexigram.config.tree import SecretText


def safe(value: Any, *, secret: bool = False) -> Any:
    """Plain data for people and JSON: secrets are ``***``, objects are mappings."""
    if isinstance(value, bool):
        return value
    if secret or isinstance(value, SecretStr | SecretText):
        return mask(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | PurePath):
        return mask_url(str(value))
    if is_config_class(type(value)):
        return safe_fields(value)
    if isinstance(value, Mapping):
        return {key: safe(item, secret=is_secret_name(str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [safe(item) for item in value]
    return value


def safe_fields(instance: Any) -> dict[str, Any]:
    """The settings of one config object, as ``safe`` shows them."""
    return {
        setting.key: safe(getattr(instance, setting.attribute), secret=setting.secret)
        for setting in settings_of(type(instance))
        if not setting.internal
    }


def safe_repr(instance: Any) -> str:
    """What ``repr`` of a config object says."""
    shown = ", ".join(f"{key}={value!r}" for key, value in safe_fields(instance).items())
    return f"{type(instance).__name__}({shown})"
