"""Fixed names and defaults of the bus."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

CONFIG_SECTION: Final = "queue"
ENV_PREFIX: Final = "LEX_QUEUE__"
ENV_NESTED_DELIMITER: Final = "__"

DEFAULT_CONSUMER_CONCURRENCY: Final = 4  # handlers of one consumer at a time
DEFAULT_CONSUMER_PREFETCH: Final = 10  # messages a consumer holds, running ones included
DEFAULT_MAX_RETRIES: Final = 3  # after the first attempt
DEFAULT_MAX_DELIVERIES: Final = 20  # before a message counts as poison
DEFAULT_VISIBILITY_TIMEOUT: Final = 30  # seconds
DEFAULT_MAX_BACKLOG: Final = 10_000  # messages

try:
    __version__ = version("lexigram-queue")
except PackageNotFoundError:  # run from a copy that was not installed
    __version__ = "0.0.0"

__all__ = [
    "CONFIG_SECTION",
    "DEFAULT_CONSUMER_CONCURRENCY",
    "DEFAULT_CONSUMER_PREFETCH",
    "DEFAULT_MAX_BACKLOG",
    "DEFAULT_MAX_DELIVERIES",
    "DEFAULT_MAX_RETRIES",
    "DEFAULT_VISIBILITY_TIMEOUT",
    "ENV_NESTED_DELIMITER",
    "ENV_PREFIX",
]
