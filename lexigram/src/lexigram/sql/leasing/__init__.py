"""Parts that every leasing store shares; each store keeps its own statements."""

from lexigram.sql.leasing.backoff import Backoff

__all__ = ["Backoff"]
