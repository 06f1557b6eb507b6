"""Client libraries of brokers: loaded when a driver first needs them, or an error that helps."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lexigram.queue.errors import QueueLibraryError


def require_library(module: str, *, extra: str) -> Any:
    """The module; without it, an error with the command that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise QueueLibraryError(
            f"driver {extra!r} needs the library {error.name or module!r}",
            backend=extra,
            hint=f'pip install "lexigram-queue[{extra}]"',
        ) from error
