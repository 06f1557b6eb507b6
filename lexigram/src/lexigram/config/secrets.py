"""Marks on settings: what they mean, and that they are secret."""

from __future__ import annotations

from typing import Any, Final, final

MASK: Final = "***"

# Metadata of fields the framework fills in itself; no file or variable sets them.
INTERNAL: Final = "lexigram.internal"


@final
class SecretStr:
    """Text that shows itself as ``***``; ``reveal()`` is the only way to the value."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself. Do not log what this returns."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretStr) and other._value == self._value

    def __hash__(self) -> int:
        return hash((SecretStr, self._value))

    def __repr__(self) -> str:
        return f"SecretStr('{MASK if self._value else ''}')"

    def __str__(self) -> str:
        return MASK if self._value else ""


def doc(text: str) -> dict[str, Any]:
    """Metadata of a setting: ``field(default=5, metadata=doc("Seconds to wait."))``."""
    return {"doc": text}


def secret(text: str = "") -> dict[str, Any]:
    """Metadata of a secret setting: ``field(default="", metadata=secret("Password."))``."""
    return {"doc": text, "secret": True}
