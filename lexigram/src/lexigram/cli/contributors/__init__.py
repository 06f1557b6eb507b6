"""How installed packages add to the command line."""

from lexigram.cli.contributors.base import BaseCliContributor
from lexigram.cli.contributors.registry import BrokenContributor, Conflict, Contributors

__all__ = ["BaseCliContributor", "BrokenContributor", "Conflict", "Contributors"]
