"""Find what a path such as ``package.module:attribute`` names."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def load_path(path: str) -> Any:
    """The object at ``package.module:attribute`` (dots go deeper)."""
    module, colon, attributes = path.partition(":")
    if not (module and colon and attributes):
        raise ValueError(f"{path!r} is not a path: package.module:attribute is expected")
    found: Any = import_module(module)
    for attribute in attributes.split("."):
        found = getattr(found, attribute)
    return found
