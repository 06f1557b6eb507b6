"""Old path of ``lexigram.contracts.core.errors``."""

from lexigram.contracts.core.errors import LexigramError

__all__ = ["LexigramError"]
