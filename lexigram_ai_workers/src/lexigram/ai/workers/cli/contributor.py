"""Adds ``lexigram ingest``, ``search`` and ``workers`` to the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lexigram.cli.contributors import BaseCliContributor
from lexigram.contracts.cli import CommandContribution

NAME: Final = "ai_workers"


class WorkersCliContributor(BaseCliContributor):
    """Implements ``CliContributorProtocol`` for the workers."""

    @property
    def contributor_id(self) -> str:
        """``ai_workers``."""
        return NAME

    def get_commands(self) -> Sequence[CommandContribution]:
        """``lexigram ingest``, ``lexigram search`` and ``lexigram workers``."""
        return [
            CommandContribution(
                "ingest",
                "Bring files into the index, and see how far that is.",
                "lexigram.ai.workers.cli.ingest:app",
                NAME,
                "ai",
            ),
            CommandContribution(
                "search",
                "Find passages in the index.",
                "lexigram.ai.workers.cli.search:app",
                NAME,
                "ai",
            ),
            CommandContribution(
                "workers",
                "Look at the AI workers, their dead letters and their maintenance.",
                "lexigram.ai.workers.cli.commands:app",
                NAME,
                "ai",
            ),
        ]
