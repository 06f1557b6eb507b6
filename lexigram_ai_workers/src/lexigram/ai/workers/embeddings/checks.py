"""Validate the input texts and the output vectors of a model."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from lexigram.ai.workers.embeddings.errors import EmbeddingInputError, EmbeddingMismatchError


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts; raise EmbeddingInputError for the first empty or invalid one."""
    for number, text in enumerate(texts):
        # Annotations are not enforced at run time.
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise EmbeddingInputError(
                f"text {number} of {len(texts)} is a {type(text).__name__}",
                details={"index": number},
                hint="pass a list of str",
            )
        if not text or text.isspace():
            raise EmbeddingInputError(
                f"text {number} of {len(texts)} is empty",
                details={"index": number},
                hint="remove empty texts: a model cannot embed them",
            )
    return list(texts)


def check_vectors(
    vectors: Sequence[Sequence[float]], count: int, dimension: int | None, source: str
) -> list[list[float]]:
    """Return the vectors; raise EmbeddingMismatchError for a wrong number, length or value.

    With ``dimension`` None the first vector sets the length.
    """
    details: dict[str, Any] = {"model": source, "texts": count}
    if len(vectors) != count:
        raise EmbeddingMismatchError(
            f"{source} returned {len(vectors)} vectors for {count} texts",
            details={**details, "vectors": len(vectors)},
            hint="check the model or the endpoint; the vectors were discarded",
        )
    for number, vector in enumerate(vectors):
        expected = len(vectors[0]) if dimension is None else dimension
        if not vector or len(vector) != expected:
            raise EmbeddingMismatchError(
                f"{source} returned a vector of length {len(vector)} for text {number}, not {expected}",
                details={**details, "index": number, "length": len(vector), "dimension": expected},
                hint="set the dimension of the model, or use the model of the collection",
            )
        if not isfinite(sum(vector)):
            raise EmbeddingMismatchError(
                f"{source} returned a vector with non-finite numbers for text {number}",
                details={**details, "index": number},
                hint="check the text and the model; the vectors were discarded",
            )
    return [vector if isinstance(vector, list) else list(vector) for vector in vectors]
