"""What every store checks before it writes or searches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
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
MODEL_KEY = "model_id"  # the metadata that says which model made a vector

Vectors = NDArray[np.float32]


def checked(records: Sequence[VectorRecord], collection: VectorCollectionProtocol) -> Vectors:
    """The vectors of the records as a matrix, once all is as the collection needs it."""
    for record in records:
        _check_record(record, collection)
    vectors = np.asarray([record.vector for record in records], dtype=np.float32)
    if len(records) and not np.isfinite(vectors).all():
        bad = records[int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])]
        raise VectorRecordError(
            f"the vector of {bad.id!r} has a value that is no number",
            details={"id": bad.id, "collection": collection.name},
        )
    return vectors


def last_of_each(records: Sequence[VectorRecord]) -> list[VectorRecord]:
    """Of records with one id, the last."""
    return list({record.id: record for record in records}.values())


def evolved(record: VectorRecord, metadata: Mapping[str, Any]) -> VectorRecord:
    """The record with other metadata."""
    return VectorRecord(
        id=record.id, vector=record.vector, metadata=dict(metadata), content=record.content
    )


def check_under(records: Sequence[VectorRecord], wanted: Mapping[str, Any]) -> None:
    """Raise unless every record matches the filter it is to replace."""
    for record in records:
        if not matches(record.metadata, wanted):
            raise VectorRecordError(
                f"record {record.id!r} does not match the filter {dict(wanted)!r}",
                details={"id": record.id},
                hint="replace() writes only what its filter would find again",
            )


def check_query(query: SearchQuery, collection: VectorCollectionProtocol) -> None:
    """Raise unless the query has what its mode goes by."""
    if query.top_k < 1:
        raise SearchRefusedError(f"top_k is {query.top_k}", hint="ask for one result at least")
    if query.mode is not SearchMode.DENSE and not (query.text and query.text.strip()):
        raise SearchRefusedError(f"a {query.mode.value} search needs a text")
    if query.mode is not SearchMode.TEXT and len(query.vector) != collection.dimension:
        raise SearchRefusedError(
            f"the vector of the query has {len(query.vector)} values, "
            f"{collection.name!r} has {collection.dimension}",
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
    """Records of texts with their vectors; an id not given is derived from the text."""
    if embeddings is None:
        raise EmbeddingError(
            "texts came without their vectors, and the store computes none",
            hint="embed them first and give `embeddings`",
        )
    if len(embeddings) != len(texts):
        raise EmbeddingError(f"{len(texts)} texts came with {len(embeddings)} vectors")
    given = [dict[str, Any]() for _ in texts] if metadatas is None else metadatas
    known = ids if ids is not None else [text_id(text) for text in texts]
    if not len(given) == len(known) == len(texts):
        raise VectorRecordError(
            f"{len(texts)} texts came with {len(given)} metadata and {len(known)} ids"
        )
    return [
        VectorRecord(id=key, vector=vector, metadata=metadata, content=text)
        for key, vector, metadata, text in zip(known, embeddings, given, texts, strict=True)
    ]


def text_id(text: str) -> str:
    """The id of a text that came without one."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def config_for(name: str, records: Sequence[VectorRecord]) -> CollectionConfig:
    """A collection for records that have none yet: their dimension, and their model if told."""
    models = {record.metadata.get(MODEL_KEY) for record in records}
    model = models.pop() if len(models) == 1 else None
    return CollectionConfig(
        name=name,
        dimension=len(records[0].vector),
        model_id=model if isinstance(model, str) else None,
    )


def check_same(config: CollectionConfig, found: VectorCollectionProtocol) -> None:
    """Raise CollectionMismatchError unless the collection that exists is the one asked for."""
    models = {config.model_id, found.model_id} - {None}
    if len(models) > 1:
        raise CollectionMismatchError(
            f"collection {found.name!r} has vectors of {found.model_id}, "
            f"and was asked to take those of {config.model_id}",
            details={"collection": found.name, "has": found.model_id, "asked": config.model_id},
            hint=f"use {found.model_id} again, or another collection for {config.model_id}",
        )
    for what in ("dimension", "distance_metric"):
        has, asked = getattr(found, what), getattr(config, what)
        if has != asked:
            raise CollectionMismatchError(
                f"collection {found.name!r} has {what} {has}, and was asked for {asked}",
                details={"collection": found.name, "has": has, "asked": asked},
                hint="use another collection, or delete this one and store again",
            )


def check_config(config: CollectionConfig) -> None:
    """Raise for a collection nobody could make."""
    name = config.name
    # Folder names of LanceDB, so the narrowest of all stores.
    if (
        not name
        or len(name) > 100
        or not all((c.isalnum() and c.isascii()) or c in "_-." for c in name)
    ):
        raise VectorStoreError(
            f"{name!r} cannot name a collection",
            hint="use letters, digits, '_', '-' and '.', up to 100 of them",
        )
    if name.startswith("."):
        raise VectorStoreError(f"{name!r} cannot name a collection", hint="begin with a letter")
    if config.dimension < 1:
        raise VectorStoreError(f"a vector has at least one value, not {config.dimension}")


def json_of(metadata: Mapping[str, Any], record_id: str) -> str:
    """Metadata as text."""
    try:
        return json.dumps(dict(metadata), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise VectorRecordError(
            f"the metadata of {record_id!r} is no JSON: {error}", details={"id": record_id}
        ) from error


def _check_record(record: VectorRecord, collection: VectorCollectionProtocol) -> None:
    if not record.id:
        raise VectorRecordError("a record needs an id", details={"collection": collection.name})
    if len(record.vector) != collection.dimension:
        raise CollectionMismatchError(
            f"the vector of {record.id!r} has {len(record.vector)} values, "
            f"{collection.name!r} takes {collection.dimension}",
            details={"id": record.id, "has": collection.dimension, "asked": len(record.vector)},
            hint=f"embed with {collection.model_id or 'one model only'}, or use another collection",
        )
    model = record.metadata.get(MODEL_KEY)
    if model is not None and collection.model_id is not None and model != collection.model_id:
        raise CollectionMismatchError(
            f"{record.id!r} was embedded by {model}, "
            f"{collection.name!r} has vectors of {collection.model_id}",
            details={"id": record.id, "has": collection.model_id, "asked": model},
            hint=f"embed with {collection.model_id}, or use another collection for {model}",
        )
