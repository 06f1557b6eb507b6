"""A logger that carries fields: ``get_logger(__name__).bind(order=7).info("paid", amount=3)``."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

# Keyword arguments that standard logging itself understands; all others are fields.
_OWN = frozenset({"exc_info", "stack_info", "stacklevel", "extra"})


class BoundLogger(logging.LoggerAdapter[logging.Logger]):
    """A standard logger with fields. Keyword arguments of a call are fields of that line.

    It writes through standard logging, so it works before logging is configured and beside
    handlers of others; ``configure_logging`` shows the fields and hides the secret ones.
    """

    def __init__(self, logger: logging.Logger, fields: dict[str, Any] | None = None) -> None:
        super().__init__(logger, fields or {})
        self._fields = fields or {}

    def bind(self, **fields: Any) -> BoundLogger:
        """A logger with these fields in addition; this one stays as it is."""
        return BoundLogger(self.logger, {**self._fields, **fields})

    def unbind(self, *names: str) -> BoundLogger:
        """A logger without these fields; names that are not bound are fine."""
        left = {name: value for name, value in self._fields.items() if name not in names}
        return BoundLogger(self.logger, left)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Move the fields where the handlers find them."""
        own = {name: value for name, value in kwargs.items() if name in _OWN}
        given = {name: value for name, value in kwargs.items() if name not in _OWN}
        extra = dict(own.get("extra") or {})
        # One key for all: standard logging refuses fields named like its own ("name", "args").
        own["extra"] = {**extra, "fields": {**self._fields, **given}}
        return msg, own


def get_logger(name: str, **fields: Any) -> BoundLogger:
    """The logger called ``name``, with fields that every line carries."""
    return BoundLogger(logging.getLogger(name), fields)
