"""Contracts of infrastructure: background tasks, cache, resilience; see the packages inside."""

__all__: list[str] = []
