"""Ids of records, and validation of records, queries and collections, shared by all stores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexigram.ai.workers.vectors.errors import (
    CollectionMismatchError,
    SearchRefusedError,
    VectorRecordError,
)
from lexigram.ai.workers.vectors.filters import check_values, matches
from lexigram.contracts.data.vector import (
    CollectionConfig,
    EmbeddingError,
    SearchMode,
    SearchQuery,
    VectorCollectionProtocol,
    VectorRecord,
    VectorStoreError,
)

DEFAULT_COLLECTION = "default"
MAX_NAME_LENGTH = 100  # characters of a collection name
MODEL_KEY = "model_id"  # metadata key of the model of a vector

Vectors = NDArray[np.float32]


def check_records(records: Sequence[VectorRecord], collection: VectorCollectionProtocol) -> Vectors:
    """Validate records for a collection; returns their vectors as a matrix."""
    for record in records:
        _check_record(record, collection)
    vectors = np.asarray([record.vector for record in records], dtype=np.float32)
    if len(records) and not np.isfinite(vectors).all():
        bad = records[int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])]
        raise VectorRecordError(
            f"the vector of record {bad.id!r} contains a value that is not finite",
            details={"id": bad.id, "collection": collection.name},
        )
    return vectors


def keep_last_by_id(records: Sequence[VectorRecord]) -> list[VectorRecord]:
    """Keep the last record of every id."""
    return list({record.id: record for record in records}.values())


def replace_metadata(record: VectorRecord, metadata: Mapping[str, Any]) -> VectorRecord:
    """Return the record with other metadata."""
    return VectorRecord(
        id=record.id, vector=record.vector, metadata=dict(metadata), content=record.content
    )


def check_matches(records: Sequence[VectorRecord], wanted: Mapping[str, Any]) -> None:
    """Raise unless all records match the filter of a replace."""
    for record in records:
        if not matches(record.metadata, wanted):
            raise VectorRecordError(
                f"record {record.id!r} does not match the filter {dict(wanted)!r}",
                details={"id": record.id},
                hint="use a filter that matches all records of replace()",
            )


def check_query(query: SearchQuery, collection: VectorCollectionProtocol) -> None:
    """Raise unless the query has the fields of its mode."""
    if query.top_k < 1:
        raise SearchRefusedError(f"invalid top_k {query.top_k}", hint="use at least 1")
    if query.mode is not SearchMode.DENSE and not (query.text and query.text.strip()):
        raise SearchRefusedError(f"a {query.mode.value} search requires `text`")
    if query.mode is not SearchMode.TEXT and len(query.vector) != collection.dimension:
        raise SearchRefusedError(
            f"the query vector has dimension {len(query.vector)}, "
            f"collection {collection.name!r} has {collection.dimension}",
            details={"collection": collection.name, "model_id": collection.model_id},
            hint=f"embed the query with {collection.model_id or 'the model of the collection'}",
        )
    if query.filter:
        check_values(query.filter)


def records_of_texts(
    texts: Sequence[str],
    embeddings: Sequence[Sequence[float]] | None,
    metadatas: Sequence[Mapping[str, Any]] | None,
    ids: Sequence[str] | None = None,
) -> list[VectorRecord]:
    """Build records of texts and vectors; a missing id is derived from the text."""
    if embeddings is None:
        raise EmbeddingError(
            "texts were given without embeddings, and the store does not compute them",
            hint="embed the texts and pass `embeddings`",
        )
    if len(embeddings) != len(texts):
        raise EmbeddingError(f"{len(embeddings)} embeddings were given for {len(texts)} texts")
    given = [dict[str, Any]() for _ in texts] if metadatas is None else metadatas
    text_ids = ids if ids is not None else [text_id(text) for text in texts]
    if not len(given) == len(text_ids) == len(texts):
        raise VectorRecordError(
            f"{len(given)} metadata and {len(text_ids)} ids were given for {len(texts)} texts"
        )
    return [
        VectorRecord(id=key, vector=vector, metadata=metadata, content=text)
        for key, vector, metadata, text in zip(text_ids, embeddings, given, texts, strict=True)
    ]


def text_id(text: str) -> str:
    """Derive an id from a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def config_for(name: str, records: Sequence[VectorRecord]) -> CollectionConfig:
    """Create a collection config for records, with their dimension and model, if known."""
    models = {record.metadata.get(MODEL_KEY) for record in records}
    model = models.pop() if len(models) == 1 else None
    return CollectionConfig(
        name=name,
        dimension=len(records[0].vector),
        model_id=model if isinstance(model, str) else None,
    )


def check_compatible(config: CollectionConfig, found: VectorCollectionProtocol) -> None:
    """Raise CollectionMismatchError unless an existing collection has the requested config."""
    models = {config.model_id, found.model_id} - {None}
    if len(models) > 1:
        raise CollectionMismatchError(
            f"collection {found.name!r} has vectors of model {found.model_id}, "
            f"requested was {config.model_id}",
            details={"collection": found.name, "has": found.model_id, "asked": config.model_id},
            hint=f"use {found.model_id} again, or another collection for {config.model_id}",
        )
    for what in ("dimension", "distance_metric"):
        has, requested = getattr(found, what), getattr(config, what)
        if has != requested:
            raise CollectionMismatchError(
                f"collection {found.name!r} has {what} {has}, requested was {requested}",
                details={"collection": found.name, "has": has, "asked": requested},
                hint="use another collection, or delete this one and ingest again",
            )


def check_config(config: CollectionConfig) -> None:
    """Raise VectorStoreError for an invalid config."""
    if not is_valid_name(config.name):
        raise VectorStoreError(
            f"a collection cannot be named {config.name!r}",
            hint="use at most 100 of the characters A-Z, a-z, 0-9, '_', '-', '.'; not '.' first",
        )
    if config.dimension < 1:
        raise VectorStoreError(
            f"a collection cannot have dimension {config.dimension}", hint="use at least 1"
        )


def is_valid_name(name: str) -> bool:
    """True for a valid collection name; the rules are those of LanceDB folders, the strictest."""
    return (
        0 < len(name) <= MAX_NAME_LENGTH
        and not name.startswith(".")
        and all((c.isalnum() and c.isascii()) or c in "_-." for c in name)
    )


def json_of(metadata: Mapping[str, Any], record_id: str) -> str:
    """Encode metadata as JSON."""
    try:
        return json.dumps(dict(metadata), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise VectorRecordError(
            f"the metadata of record {record_id!r} is not valid JSON: {error}",
            details={"id": record_id},
        ) from error


def _check_record(record: VectorRecord, collection: VectorCollectionProtocol) -> None:
    if not record.id:
        raise VectorRecordError("a record has no id", details={"collection": collection.name})
    if len(record.vector) != collection.dimension:
        raise CollectionMismatchError(
            f"the vector of record {record.id!r} has dimension {len(record.vector)}, "
            f"collection {collection.name!r} has {collection.dimension}",
            details={"id": record.id, "has": collection.dimension, "asked": len(record.vector)},
            hint=f"embed with {collection.model_id or 'one model only'}, or use another collection",
        )
    model = record.metadata.get(MODEL_KEY)
    if model is not None and collection.model_id is not None and model != collection.model_id:
        raise CollectionMismatchError(
            f"record {record.id!r} has a vector of model {model}, "
            f"collection {collection.name!r} has vectors of {collection.model_id}",
            details={"id": record.id, "has": collection.model_id, "asked": model},
            hint=f"embed with {collection.model_id}, or use another collection for {model}",
        )


# --- ids ---


def chunk_ids(chunks: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return the ids of chunks, each given as source, heading path and text.

    Ids are deterministic, so that storing a chunk again replaces it. Equal texts of a source
    under the same heading are numbered.
    """
    seen: dict[str, int] = {}
    ids: list[str] = []
    for source, heading, text in chunks:
        base = f"{source}\0{heading}\0{text}"
        seen[base] = number = seen.get(base, -1) + 1
        data = f"{base}\0{number}".encode("utf-8", "surrogatepass")
        ids.append(hashlib.sha256(data).hexdigest()[:32])
    return ids
