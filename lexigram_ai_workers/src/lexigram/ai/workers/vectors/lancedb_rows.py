"""The schema of LanceDB tables, and the conversion of records to rows."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Sequence
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

# pyarrow has no types, and those of LanceDB are incomplete.
Arrow: TypeAlias = Any
AsyncTable: TypeAlias = Any
AsyncConnection: TypeAlias = Any

# The key of the collection config in the table schema.
FACTS_KEY: Final = "lexigram"

# Rows of a large write that are converted at once. Peak memory of 25,000 rows (50 MB of text): 772
# MB as one table, 668 with 4,096 rows, 625 with 1,024; no difference in time.
BATCH_ROW_COUNT: Final = 1024

# Makes LanceDB reject a merge that conflicts with another on the same new ids, instead of storing
# both rows: two writers of the same 50 new ids without a lock left 50 rows with it, 100 without.
_UNIQUE = {"lance-schema:unenforced-primary-key": "true"}


def schema_of(config: CollectionConfig) -> Arrow:
    """Build the schema of a table; ``facts`` makes all other metadata filterable."""
    pa: Any = importlib.import_module("pyarrow")

    facts = {
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
        metadata={FACTS_KEY: json.dumps(facts)},
    )


def config_of(name: str, schema: Arrow) -> CollectionConfig:
    """Read the config of a table; KeyError or ValueError for a foreign table."""
    facts = json.loads(schema.metadata[FACTS_KEY.encode()])
    return CollectionConfig(
        name=name,
        dimension=schema.field("vector").type.list_size,
        distance_metric=DistanceMetric(facts["metric"]),
        index_type=IndexType(facts["index_type"]),
        model_id=facts["model_id"],
    )


def rows_of(records: Sequence[VectorRecord], vectors: Vectors, schema: Arrow) -> Arrow:
    """Convert records and the matrix of their vectors to an Arrow table."""
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


def stream_of(
    records: Sequence[VectorRecord], vectors: Vectors, schema: Arrow, errors: list[Exception]
) -> Arrow:
    """Return a reader whose batches are converted while LanceDB reads them, in a thread of its own.

    An error of the conversion is appended to ``errors``: LanceDB raises another one for it.
    """
    pa: Any = importlib.import_module("pyarrow")

    def batches() -> Iterator[Arrow]:
        try:
            for start in range(0, len(records), BATCH_ROW_COUNT):
                part = slice(start, start + BATCH_ROW_COUNT)
                yield from rows_of(records[part], vectors[part], schema).to_batches()
        except Exception as error:
            errors.append(error)
            raise

    return pa.RecordBatchReader.from_batches(schema, batches())


def records_of(rows: Arrow) -> Iterable[VectorRecord]:
    """Convert rows to records; of duplicate ids (see LanceWriter) the last is used."""
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
    """Convert rows to mappings; vectors, if selected, stay arrays."""
    if "vector" not in found.column_names:
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows
    flat = found["vector"].combine_chunks().flatten().to_numpy()
    rows = found.drop_columns(["vector"]).to_pylist()
    for row, vector in zip(rows, flat.reshape(len(rows), -1) if rows else [], strict=True):
        row["vector"] = vector
    return rows


def metadata_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a row."""
    found: dict[str, Any] = json.loads(row["metadata"])
    return found
