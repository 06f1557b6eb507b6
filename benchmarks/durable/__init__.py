"""Durable runs on SQLite and PostgreSQL beside DBOS, procrastinate and pgqueuer."""
