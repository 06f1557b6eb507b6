"""Caches in memory, SQLite, PostgreSQL and Redis against plain ones."""
