"""One file per change of the AI workers' tables; what is released is never changed again."""

__all__: list[str] = []
