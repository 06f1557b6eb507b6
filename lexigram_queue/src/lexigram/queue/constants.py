"""Fixed names of the bus."""

from __future__ import annotations

from typing import Final

CONFIG_SECTION: Final = "queue"
ENV_PREFIX: Final = "LEX_QUEUE__"
ENV_NESTED_DELIMITER: Final = "__"
