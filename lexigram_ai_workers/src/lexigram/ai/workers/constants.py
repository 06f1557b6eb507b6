"""Fixed names of the AI workers."""

from __future__ import annotations

from typing import Final

CONFIG_SECTION: Final = "ai_workers"
ENV_PREFIX: Final = "LEX_AI_WORKERS__"
ENV_NESTED_DELIMITER: Final = "__"
