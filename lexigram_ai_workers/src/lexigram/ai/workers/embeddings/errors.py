"""Errors of embeddings.

Permanent ones are StepRefusedErrors, which a durable step does not retry.
"""

from __future__ import annotations

from typing import Any

from lexigram.contracts.data.vector.errors import EmbeddingError
from lexigram.contracts.workflow.errors import StepRefusedError


class EmbeddingModelError(EmbeddingError, StepRefusedError):
    """The model cannot be used: missing, incomplete or unsupported."""

    code = "LEX_ERR_AIWORK_020"


class EmbeddingLibraryError(EmbeddingError, StepRefusedError, ImportError):
    """The library of a model is not installed."""

    code = "LEX_ERR_AIWORK_021"


class EmbeddingMismatchError(EmbeddingError):
    """The model did not return one valid vector of the right length per text."""

    code = "LEX_ERR_AIWORK_022"


class ModelsMixedError(EmbeddingError, StepRefusedError):
    """Vectors of one model were combined with vectors of another model."""

    code = "LEX_ERR_AIWORK_023"

    def __init__(self, wanted: str, found: str, where: str, **kwargs: Any) -> None:
        details = {"wanted": wanted, "found": found, **kwargs.pop("details", {})}
        super().__init__(f"{where} has {found!r}, not {wanted!r}", details=details, **kwargs)
        self.wanted = wanted
        self.found = found


class EmbeddingInputError(EmbeddingError, StepRefusedError, ValueError):
    """A text cannot be embedded: it is empty or not a str."""

    code = "LEX_ERR_AIWORK_024"


class EmbeddingEndpointError(EmbeddingError, StepRefusedError):
    """The endpoint rejected the request or returned an invalid response; a retry does not help."""

    code = "LEX_ERR_AIWORK_025"


class EmbeddingsUnavailableError(EmbeddingError):
    """The endpoint was unavailable until the retries or the time were used up.

    ``retry_after`` is its last Retry-After, in seconds.
    """

    code = "LEX_ERR_AIWORK_026"

    def __init__(self, message: str, *, retry_after: float | None = None, **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.retry_after = retry_after
