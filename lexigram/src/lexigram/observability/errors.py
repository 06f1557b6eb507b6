"""What can be wrong with the way an application is observed."""

from __future__ import annotations

from lexigram.contracts.core.errors import ConfigurationError, LexigramError


class MissingLibraryError(ConfigurationError, ImportError):
    """A library of an extra is asked for and not installed."""

    code = "LEX_ERR_OBS_001"

    def __init__(self, what: str, extra: str) -> None:
        command = f"pip install 'lexigram[{extra}]'"
        super().__init__(
            f"{what} needs a library that is not installed",
            details={"extra": extra},
            hint=command,
        )


class MetricConflictError(LexigramError):
    """A metric is used in a way that contradicts its first use, or cannot be written down."""

    code = "LEX_ERR_OBS_002"
