"""Looks at texts before, and at vectors after a model; what is wrong is never passed on."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from lexigram.ai.workers.embeddings.errors import EmbeddingInputError, EmbeddingMismatchError


def checked_texts(texts: Sequence[str]) -> list[str]:
    """The texts; EmbeddingInputError names the first that can have no vector."""
    for number, text in enumerate(texts):
        # At run time anything can come: annotations are not read there.
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise EmbeddingInputError(
                f"text {number} of {len(texts)} is a {type(text).__name__}",
                details={"index": number},
                hint="give a list of str",
            )
        if not text or text.isspace():
            raise EmbeddingInputError(
                f"text {number} of {len(texts)} is empty",
                details={"index": number},
                hint="leave out texts without a word: no model has a vector for them",
            )
    return list(texts)


def checked_vectors(
    vectors: Sequence[Sequence[float]], count: int, dimension: int | None, source: str
) -> list[list[float]]:
    """As many vectors as texts, all of one length, all finite; else EmbeddingMismatchError.

    ``dimension`` None takes the length of the first.
    """
    facts: dict[str, Any] = {"model": source, "texts": count}
    if len(vectors) != count:
        raise EmbeddingMismatchError(
            f"{source} gave {len(vectors)} vectors for {count} texts",
            details={**facts, "vectors": len(vectors)},
            hint="nothing was kept of it; the model or the endpoint does not keep its promise",
        )
    for number, vector in enumerate(vectors):
        expected = len(vectors[0]) if dimension is None else dimension
        if not vector or len(vector) != expected:
            raise EmbeddingMismatchError(
                f"{source} gave a vector of {len(vector)} for text {number}, not of {expected}",
                details={**facts, "index": number, "length": len(vector), "dimension": expected},
                hint="set the dimension of the model, or use the model the collection was made for",
            )
        if not isfinite(sum(vector)):
            raise EmbeddingMismatchError(
                f"{source} gave a vector for text {number} that is not made of finite numbers",
                details={**facts, "index": number},
                hint="nothing was kept of it; look at the text and at the model",
            )
    return [vector if isinstance(vector, list) else list(vector) for vector in vectors]
