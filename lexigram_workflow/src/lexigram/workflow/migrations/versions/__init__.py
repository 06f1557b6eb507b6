"""One file per change of the core's tables; what is released is never changed again."""

__all__: list[str] = []
