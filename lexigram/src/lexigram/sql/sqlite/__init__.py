"""SQLite: one writer thread, some reader threads."""

__all__: list[str] = []
