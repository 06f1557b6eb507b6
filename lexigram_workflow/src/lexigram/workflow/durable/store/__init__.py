"""The store of durable runs: its records, and its statements for SQLite and PostgreSQL."""
