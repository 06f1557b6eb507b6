"""PostgreSQL: a pool of asyncpg connections and a listener."""

__all__: list[str] = []
