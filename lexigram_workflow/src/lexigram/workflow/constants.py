"""Fixed names of orchestration."""

from __future__ import annotations

from typing import Final

CONFIG_SECTION: Final = "workflow"
ENV_PREFIX: Final = "LEX_WORKFLOW__"
ENV_NESTED_DELIMITER: Final = "__"
