"""Logging for people and machines; tracing and metrics are contracts with no-ops."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.observability.bound import BoundLogger, get_logger
    from lexigram.observability.logging import configure_logging, reset_logging
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.observability.bound": ["BoundLogger", "get_logger"],
            "lexigram.observability.logging": ["configure_logging", "reset_logging"],
        },
    )

__all__ = ["BoundLogger", "configure_logging", "get_logger", "reset_logging"]
