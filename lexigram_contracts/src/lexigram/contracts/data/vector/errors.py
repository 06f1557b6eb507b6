"""What can go wrong with vectors."""

from __future__ import annotations

from lexigram.contracts.core.errors import InfrastructureError


class VectorError(InfrastructureError):
    """Something about vectors went wrong."""

    code = "LEX_ERR_VEC_001"


class VectorStoreError(VectorError):
    """The store failed, or was asked for a collection or a dimension it does not have."""

    code = "LEX_ERR_VEC_002"


class EmbeddingError(VectorError):
    """Texts were not turned into vectors, or not into as many or as long ones as they should."""

    code = "LEX_ERR_VEC_003"


class VectorIndexError(VectorError):
    """An index could not be built: the store does not know the type, or building failed."""

    code = "LEX_ERR_VEC_004"
