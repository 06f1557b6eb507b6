"""One file per change of the core's tables; released migrations are never changed."""

__all__: list[str] = []
