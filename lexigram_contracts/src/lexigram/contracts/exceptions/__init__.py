"""Old home of the error classes; new code imports ``lexigram.contracts.core.errors``."""

from lexigram.contracts.exceptions.base import LexigramError

__all__ = ["LexigramError"]
