"""Handler names of definitions written for Soliplex Ingester, and their replacements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# ``module.*`` stands for every function of the module.
SOLIPLEX_ALIASES: Final[Mapping[str, str]] = {
    "soliplex.ingester.lib.workflow.*": "lexigram.ai.workers.steps.*",
    "soliplex.ingester.example.run_end": "lexigram.ai.workers.steps.run_end",
}
