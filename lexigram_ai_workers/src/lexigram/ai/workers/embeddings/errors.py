"""What can go wrong when texts are turned into vectors.

Those that trying again cannot help are StepRefusedErrors: a durable step gives up at once.
"""

from __future__ import annotations

from typing import Any

from lexigram.contracts.data.vector.errors import EmbeddingError
from lexigram.contracts.workflow.errors import StepRefusedError


class EmbeddingModelError(EmbeddingError, StepRefusedError):
    """The model cannot be used: it is not there, not complete, or of a kind not known here."""

    code = "LEX_ERR_AIWORK_020"


class EmbeddingLibraryError(EmbeddingError, StepRefusedError, ImportError):
    """The library of a model is not installed; says what brings it."""

    code = "LEX_ERR_AIWORK_021"


class EmbeddingMismatchError(EmbeddingError):
    """The answer has not one good vector of the right length per text; nothing of it is used."""

    code = "LEX_ERR_AIWORK_022"


class ModelsMixedError(EmbeddingError, StepRefusedError):
    """Vectors of one model were to be put beside, or asked for in place of, those of another."""

    code = "LEX_ERR_AIWORK_023"

    def __init__(self, wanted: str, found: str, where: str, **kwargs: Any) -> None:
        details = {"wanted": wanted, "found": found, **kwargs.pop("details", {})}
        super().__init__(f"{where} has {found!r}, not {wanted!r}", details=details, **kwargs)
        self.wanted = wanted
        self.found = found


class EmbeddingInputError(EmbeddingError, StepRefusedError, ValueError):
    """A text has no vector: it is empty, or no text."""

    code = "LEX_ERR_AIWORK_024"


class EmbeddingEndpointError(EmbeddingError, StepRefusedError):
    """The endpoint refused the request, or answered what cannot be read; again is no better."""

    code = "LEX_ERR_AIWORK_025"


class EmbeddingsUnavailableError(EmbeddingError):
    """The endpoint was busy, failing or out of reach until the tries or the time were over.

    ``retry_after`` is what it asked for last, in seconds.
    """

    code = "LEX_ERR_AIWORK_026"

    def __init__(self, message: str, *, retry_after: float | None = None, **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.retry_after = retry_after
