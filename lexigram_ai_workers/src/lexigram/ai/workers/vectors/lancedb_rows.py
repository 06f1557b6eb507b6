"""The columns of a LanceDB table, and records as rows of them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from lexigram.ai.workers.vectors.filters import COLUMNS, columns_of, facts_of
from lexigram.ai.workers.vectors.records import Vectors, json_of
from lexigram.contracts.data.vector import (
    CollectionConfig,
    DistanceMetric,
    IndexType,
    VectorRecord,
)

# pyarrow has no types, and those of LanceDB lag behind what it does.
Arrow: TypeAlias = Any
AsyncTable: TypeAlias = Any
AsyncConnection: TypeAlias = Any

# What the table is, kept in its schema: read back by whoever opens it.
FACTS_KEY: Final = "lexigram"

# Makes LanceDB refuse a merge that met another one on the same new ids, instead of keeping both
# rows: two lock-free writers of the same 50 new ids left 50 rows with it and 100 without.
_UNIQUE = {"lance-schema:unenforced-primary-key": "true"}


def schema_of(config: CollectionConfig) -> Arrow:
    """The columns of a new table; ``facts`` makes the rest of the metadata filterable."""
    pa: Any = importlib.import_module("pyarrow")

    told = {
        "metric": config.distance_metric.value,
        "index_type": config.index_type.value,
        "model_id": config.model_id,
    }
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False, metadata=_UNIQUE),
            pa.field("vector", pa.list_(pa.float32(), config.dimension), nullable=False),
            pa.field("content", pa.string()),
            *(pa.field(name, pa.string()) for name in COLUMNS),
            pa.field("facts", pa.list_(pa.string())),
            pa.field("metadata", pa.string(), nullable=False),
        ],
        metadata={FACTS_KEY: json.dumps(told)},
    )


def config_of(name: str, schema: Arrow) -> CollectionConfig:
    """What a table was made as; KeyError or ValueError when it is not one of ours."""
    told = json.loads(schema.metadata[FACTS_KEY.encode()])
    return CollectionConfig(
        name=name,
        dimension=schema.field("vector").type.list_size,
        distance_metric=DistanceMetric(told["metric"]),
        index_type=IndexType(told["index_type"]),
        model_id=told["model_id"],
    )


def rows_of(records: Sequence[VectorRecord], vectors: Vectors, schema: Arrow) -> Arrow:
    """Records as one Arrow table; their vectors come as the matrix that was checked."""
    pa: Any = importlib.import_module("pyarrow")

    columns = [columns_of(record.metadata) for record in records]
    flat = pa.array(np.ascontiguousarray(vectors).ravel())
    dimension = schema.field("vector").type.list_size
    return pa.Table.from_arrays(
        [
            pa.array([record.id for record in records], pa.string()),
            pa.FixedSizeListArray.from_arrays(flat, dimension),
            pa.array([record.content for record in records], pa.string()),
            *(pa.array([found[name] for found in columns], pa.string()) for name in COLUMNS),
            pa.array([list(facts_of(r.metadata)) for r in records], pa.list_(pa.string())),
            pa.array([json_of(r.metadata, r.id) for r in records], pa.string()),
        ],
        schema=schema,
    )


def records_of(rows: Arrow) -> Iterable[VectorRecord]:
    """Rows as records; of rows with one id (see the writer on shared storage), the last."""
    found: dict[str, VectorRecord] = {}
    for row in rows.to_pylist():
        found[row["id"]] = VectorRecord(
            id=row["id"],
            vector=row["vector"],
            metadata=metadata_of(row),
            content=row["content"],
        )
    return found.values()


def rows_with_vectors(found: Arrow) -> list[dict[str, Any]]:
    """Rows as mappings; vectors, where they were asked for, as arrays and not as lists."""
    if "vector" not in found.column_names:
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows
    flat = found["vector"].combine_chunks().flatten().to_numpy()
    rows = found.drop_columns(["vector"]).to_pylist()
    for row, vector in zip(rows, flat.reshape(len(rows), -1) if rows else [], strict=True):
        row["vector"] = vector
    return rows


def metadata_of(row: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a row as it was given."""
    found: dict[str, Any] = json.loads(row["metadata"])
    return found
