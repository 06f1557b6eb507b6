"""One file per change of the tables; released migrations are never changed."""

__all__: list[str] = []
