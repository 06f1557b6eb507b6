"""Values of vector stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class DistanceMetric(StrEnum):
    """How far two vectors are apart."""

    COSINE = "cosine"
    EUCLIDEAN = "euclidean"
    DOT_PRODUCT = "dot_product"
    MANHATTAN = "manhattan"


class IndexType(StrEnum):
    """How vectors are found; a store refuses, by name, what it cannot build."""

    AUTO = "auto"  # the store chooses by size
    FLAT = "flat"
    HNSW = "hnsw"
    IVFFLAT = "ivfflat"
    IVF_RQ = "ivf_rq"


class SearchMode(StrEnum):
    """What a search goes by."""

    DENSE = "dense"  # the vector
    TEXT = "text"  # the words of the content
    HYBRID = "hybrid"  # both, ranked again together


class IndexState(StrEnum):
    """Whether a collection can be searched by its index; without it a search is slower."""

    CREATING = "creating"
    READY = "ready"
    UPDATING = "updating"
    ERROR = "error"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class VectorRecord:
    """A vector with its id, its text and facts to filter by."""

    id: str
    vector: Sequence[float]
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    content: str | None = None


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to look for. A filter holds when every key equals its value or one of a list.

    TEXT needs ``text``, DENSE the vector, HYBRID both; else ValueError.
    """

    vector: Sequence[float] = ()
    top_k: int = 10
    filter: Mapping[str, Any] | None = None
    include_vectors: bool = False
    include_metadata: bool = True
    # results below it are left out
    min_score: float | None = None
    text: str | None = None
    mode: SearchMode = SearchMode.DENSE


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One hit. A higher score is a better hit, whatever the metric.

    The cosine or the product as it is, a distance d as 1 / (1 + d); of a search by words what
    the store makes of them, of a hybrid one a number from 0 to 1.
    """

    id: str
    score: float
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    vector: Sequence[float] | None = None
    content: str | None = None


@dataclass(frozen=True, slots=True)
class CollectionConfig:
    """How to make a collection."""

    name: str
    dimension: int
    distance_metric: DistanceMetric = DistanceMetric.COSINE
    index_type: IndexType = IndexType.AUTO
    hnsw_m: int = 16
    hnsw_ef_construction: int = 200
    metadata_schema: Mapping[str, Any] | None = None
    # what made the vectors; a collection takes those of one model only. None: not known
    model_id: str | None = None


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """What a collection is."""

    name: str
    dimension: int
    distance_metric: DistanceMetric
    index_type: IndexType
    vector_count: int
    state: IndexState
    model_id: str | None = None


@dataclass(frozen=True, slots=True)
class UpsertResult:
    """How many records were written, new and replaced."""

    upserted_count: int


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """How many records were removed."""

    deleted_count: int
