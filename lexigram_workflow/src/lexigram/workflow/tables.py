"""The tables of workflows; migrations/versions makes the same."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData()

# One row per run of a graph, changed when its status changes and not at every step.
graph_runs = Table(
    "lexigram_graph_runs",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("graph", String(255), nullable=False),
    Column("version", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("due_at", Double),
    Column("error", Text),
    Column("parent_run", String(255)),
    Column("parent_seq", BigInteger),
    # Lists of runs by status, the sweep of ended ones, and pauses that are over.
    Index("ix_lexigram_graph_runs_status", "status", "updated_at"),
)

# Append only: one row per step.
graph_checkpoints = Table(
    "lexigram_graph_checkpoints",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("whole", Boolean, nullable=False),
    Column("data", LargeBinary, nullable=False),
    # names of nodes as a JSON list
    Column("nodes", Text, nullable=False),
    Column("created_at", Double, nullable=False),
)

# One row per saga, changed after every step.
sagas = Table(
    "lexigram_sagas",
    metadata,
    Column("saga_id", String(255), primary_key=True),
    Column("state", String(16), nullable=False),
    # JSON
    Column("data", Text, nullable=False),
    Column("updated_at", Double, nullable=False),
    # who works on it, and until when
    Column("owner", String(255)),
    Column("leased_until", Double),
    # Sagas that were cut off, the oldest first.
    Index("ix_lexigram_sagas_state", "state", "updated_at"),
)

# Outputs of stages by the content of their inputs; the name is that of the 0.1 line.
content_checkpoints = Table(
    "workflow_content_checkpoints",
    metadata,
    Column("key_str", String(512), primary_key=True),
    Column("stage_id", String(255), nullable=False),
    Column("tenant_id", String(255), nullable=False),
    # JSON
    Column("entry_json", Text, nullable=False),
    Column("stage_handler_version", String(255), nullable=False),
    Column("output_size_bytes", BigInteger, nullable=False),
    # seconds since 1970-01-01 UTC
    Column("completed_at", Double, nullable=False),
    Column("created_at", Double, nullable=False),
    # What a stage has, the latest first.
    Index("ix_workflow_content_checkpoints_stage", "stage_id", "tenant_id", "completed_at"),
)

# One row per bulk operation.
bulk_operations = Table(
    "lexigram_bulk_operations",
    metadata,
    Column("operation_id", String(255), primary_key=True),
    Column("batch_size", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
)

# Append only: one row per finished batch.
bulk_batches = Table(
    "lexigram_bulk_batches",
    metadata,
    Column("operation_id", String(255), primary_key=True),
    Column("batch_id", BigInteger, primary_key=True, autoincrement=False),
    # places of items that failed, as a JSON list
    Column("failed", Text, nullable=False),
)

# Append only: one row per transition of a state machine; the name is that of the 0.1 line.
state_transitions = Table(
    "workflow_state_transitions",
    metadata,
    Column("machine_id", String(255), primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("from_state", String(255), nullable=False),
    Column("event", String(255), nullable=False),
    Column("to_state", String(255), nullable=False),
    # seconds since 1970-01-01 UTC
    Column("transitioned_at", Double, nullable=False),
)
