"""Adds ``lexigram ingest``, ``search`` and ``ai workers`` to the command line."""

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
        """``lexigram ingest``, ``lexigram search`` and ``lexigram ai workers``."""
        return [
            CommandContribution(
                "ingest",
                "Ingest files into the vector index, or show the ingestion status.",
                "lexigram.ai.workers.cli.ingest:app",
                NAME,
                "AI",
            ),
            CommandContribution(
                "search",
                "Search the vector index for passages.",
                "lexigram.ai.workers.cli.search:app",
                NAME,
                "AI",
            ),
            CommandContribution(
                "ai",
                "Inspect and manage AI workers.",
                "lexigram.ai.workers.cli.commands:ai",
                NAME,
                "AI",
            ),
            # The old name of `ai workers`.
            CommandContribution(
                "workers",
                "Inspect AI workers, dead letters and maintenance tasks.",
                "lexigram.ai.workers.cli.commands:app",
                NAME,
                "AI",
                hidden=True,
            ),
        ]
