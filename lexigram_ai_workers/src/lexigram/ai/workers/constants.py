"""Fixed names and defaults of the AI workers."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

CONFIG_SECTION: Final = "ai_workers"
ENV_PREFIX: Final = "LEX_AI_WORKERS__"
ENV_NESTED_DELIMITER: Final = "__"

DEFAULT_COLLECTION: Final = "documents"  # where documents are stored
DEFAULT_CHECK_INTERVAL: Final = 60  # poll interval for dead letters, in seconds
DEFAULT_MAX_RETRIES: Final = 5  # of a dead letter
DEFAULT_BASE_BACKOFF: Final = 60  # seconds before its first retry; doubles each time
MAX_BACKOFF_SECONDS: Final = 3600
DEFAULT_TASK_TIMEOUT: Final = 300.0  # of a maintenance task, in seconds
MAX_HISTORY_SIZE: Final = 1000  # stored results per maintenance task

try:
    __version__ = version("lexigram-ai-workers")
except PackageNotFoundError:  # not installed
    __version__ = "0.0.0"

__all__ = [
    "CONFIG_SECTION",
    "DEFAULT_BASE_BACKOFF",
    "DEFAULT_CHECK_INTERVAL",
    "DEFAULT_COLLECTION",
    "DEFAULT_MAX_RETRIES",
    "DEFAULT_TASK_TIMEOUT",
    "ENV_NESTED_DELIMITER",
    "ENV_PREFIX",
    "MAX_BACKOFF_SECONDS",
    "MAX_HISTORY_SIZE",
]
