"""The in-memory vector store, for tests and stubs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from lexigram.ai.workers.vectors.base import CollectionBase, StoreBase
from lexigram.ai.workers.vectors.errors import CollectionNotFoundError
from lexigram.ai.workers.vectors.filters import check_filter, matches
from lexigram.ai.workers.vectors.records import (
    Vectors,
    check_compatible,
    check_config,
    check_matches,
    check_query,
    check_records,
    json_of,
    keep_last_by_id,
    replace_metadata,
)
from lexigram.ai.workers.vectors.scores import best_of, fuse_scores, similarity
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.data.vector import (
    CollectionConfig,
    CollectionInfo,
    DeleteResult,
    IndexState,
    IndexType,
    SearchMode,
    SearchQuery,
    SearchResult,
    UpsertResult,
    VectorIndexError,
    VectorRecord,
)

# Parameters of BM25: term frequency saturation and length normalization.
_K1, _B = 1.2, 0.75
_WORD = re.compile(r"\w+")


class MemoryVectorStore(StoreBase):
    """Implements VectorStoreProtocol in memory; searches are exact."""

    def __init__(self, *, dense_weight: float = 0.7) -> None:
        self._dense_weight = dense_weight
        self._collections: dict[str, MemoryCollection] = {}

    async def connect(self) -> None:
        """Do nothing: there is no connection."""

    async def disconnect(self) -> None:
        """Do nothing: the records are kept."""

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """Always HEALTHY."""
        return HealthCheckResult(
            component="vectors.memory", message=f"{len(self._collections)} collections"
        )

    async def list_collections(self) -> Sequence[CollectionInfo]:
        """List all collections, sorted by name."""
        return [self._collections[name].info() for name in sorted(self._collections)]

    async def create_collection(self, config: CollectionConfig) -> MemoryCollection:
        """Create a collection; an existing equal collection is returned."""
        check_config(config)
        if config.index_type not in {IndexType.AUTO, IndexType.FLAT}:
            raise VectorIndexError(
                f"the memory store does not support the index type {config.index_type.value}",
                hint="use auto or flat",
            )
        made = MemoryCollection(config, self._dense_weight)
        found = self._collections.setdefault(config.name, made)
        check_compatible(config, found)
        return found

    async def delete_collection(self, name: str) -> bool:
        """Delete a collection with all records."""
        return self._collections.pop(name, None) is not None

    async def collection_exists(self, name: str) -> bool:
        """True if the collection exists."""
        return name in self._collections

    async def get_collection(self, name: str) -> MemoryCollection:
        """Return a collection. Raises CollectionNotFoundError."""
        try:
            return self._collections[name]
        except KeyError:
            raise CollectionNotFoundError(
                f"unknown collection {name!r} in memory", details={"collection": name}
            ) from None


@frozen(kw_only=True)
class _StoredRecord:
    """A record as copies of its values, so that callers cannot change it."""

    vector: Vectors
    metadata: str
    content: str | None

    def read_metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.metadata)
        return found


class MemoryCollection(CollectionBase):
    """A collection in memory."""

    def __init__(self, config: CollectionConfig, dense_weight: float) -> None:
        super().__init__(config)
        self._dense_weight = dense_weight
        self._records: dict[str, _StoredRecord] = {}

    async def upsert(self, records: Sequence[VectorRecord]) -> UpsertResult:
        """Write records; records with the same id are replaced."""
        unique = keep_last_by_id(records)
        vectors = check_records(unique, self)
        stored = {
            record.id: _StoredRecord(
                vector=vector.copy(),
                metadata=json_of(record.metadata, record.id),
                content=record.content,
            )
            for record, vector in zip(unique, vectors, strict=True)
        }
        self._records.update(stored)
        return UpsertResult(len(unique))

    async def replace(
        self,
        filter: Mapping[str, Any],  # noqa: A002 - the name users write
        records: Sequence[VectorRecord],
    ) -> UpsertResult:
        """Replace all records that match the filter."""
        check_filter(filter)
        check_matches(records, filter)
        written = await self.upsert(records)
        new = {record.id for record in records}
        await self.delete([key for key in self._match(filter) if key not in new])
        return written

    async def search(self, query: SearchQuery) -> Sequence[SearchResult]:
        """Search; returns results, best first."""
        check_query(query, self)
        ids = list(self._records) if not query.filter else self._match(query.filter)
        scores = self._scores(query, ids)
        return [self._result(key, scores[key], query) for key in best_of(scores, query)]

    async def get(self, ids: Sequence[str]) -> Sequence[VectorRecord]:
        """Return the existing records."""
        return [self._record(key) for key in dict.fromkeys(ids) if key in self._records]

    async def delete(self, ids: Sequence[str]) -> DeleteResult:
        """Delete records; unknown ids are not counted."""
        return DeleteResult(sum(self._records.pop(key, None) is not None for key in ids))

    async def delete_by_filter(
        self,
        filter: Mapping[str, Any],  # noqa: A002 - the name users write
    ) -> DeleteResult:
        """Delete the matching records."""
        check_filter(filter)
        return await self.delete(self._match(filter))

    async def update_metadata(
        self,
        id: str,  # noqa: A002 - the name users write
        metadata: Mapping[str, Any],
    ) -> bool:
        """Replace the metadata of a record; False if it is unknown."""
        if id not in self._records:
            return False
        await self.upsert([replace_metadata(self._record(id), metadata)])
        return True

    async def count(self) -> int:
        """Return the number of records."""
        return len(self._records)

    def info(self) -> CollectionInfo:
        """Return information about the collection."""
        return CollectionInfo(
            name=self.name,
            dimension=self.dimension,
            distance_metric=self.distance_metric,
            index_type=IndexType.FLAT,
            vector_count=len(self._records),
            state=IndexState.READY,
            model_id=self.model_id,
        )

    def _match(self, wanted: Mapping[str, Any]) -> list[str]:
        return [
            key for key, stored in self._records.items() if matches(stored.read_metadata(), wanted)
        ]

    def _scores(self, query: SearchQuery, ids: Sequence[str]) -> Mapping[str, float]:
        if query.mode is SearchMode.TEXT:
            return self._score_words(query.text or "", ids)
        dense = self._score_vectors(query.vector, ids)
        if query.mode is SearchMode.DENSE:
            return dense
        return fuse_scores(dense, self._score_words(query.text or "", ids), self._dense_weight)

    def _score_vectors(self, vector: Sequence[float], ids: Sequence[str]) -> dict[str, float]:
        if not ids:
            return {}
        matrix = np.stack([self._records[key].vector for key in ids])
        scores = similarity(matrix, np.asarray(vector, dtype=np.float32), self.distance_metric)
        return {key: float(score) for key, score in zip(ids, scores, strict=True)}

    def _score_words(self, text: str, ids: Sequence[str]) -> dict[str, float]:
        """Score texts with BM25; texts without any of the words are omitted."""
        texts = {key: _words(self._records[key].content) for key in ids}
        average = sum(map(len, texts.values())) / len(texts) if texts else 0.0
        scores: dict[str, float] = {}
        for word in dict.fromkeys(_words(text)):
            found = {key: words.count(word) for key, words in texts.items() if word in words}
            rarity = math.log(1 + (len(texts) - len(found) + 0.5) / (len(found) + 0.5))
            for key, times in found.items():
                length = _K1 * (1 - _B + _B * len(texts[key]) / average)
                scores[key] = scores.get(key, 0.0) + rarity * times * (_K1 + 1) / (times + length)
        return scores

    def _record(self, key: str) -> VectorRecord:
        stored = self._records[key]
        return VectorRecord(
            id=key,
            vector=stored.vector.tolist(),
            metadata=stored.read_metadata(),
            content=stored.content,
        )

    def _result(self, key: str, score: float, query: SearchQuery) -> SearchResult:
        record = self._record(key)
        return SearchResult(
            id=key,
            score=score,
            metadata=record.metadata if query.include_metadata else {},
            vector=record.vector if query.include_vectors else None,
            content=record.content,
        )


def _words(text: str | None) -> list[str]:
    return _WORD.findall((text or "").lower())
