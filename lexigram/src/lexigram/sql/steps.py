"""Several statements written once for both databases, as a generator."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sqlalchemy import Connection

from lexigram.contracts.data.sql.database import QueryResult

if TYPE_CHECKING:
    from lexigram.sql.postgres.connection import PostgresConnection

T = TypeVar("T")

Step: TypeAlias = tuple[str, Sequence[Any]]
Steps: TypeAlias = Generator[Step, QueryResult, T]


def walked(connection: Connection, steps: Steps[T]) -> T:
    """Do the steps in the calling thread."""
    answer: QueryResult | None = None
    while True:
        try:
            sql, params = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        found = connection.exec_driver_sql(sql, tuple(params))
        if found.returns_rows:
            rows = [dict(row) for row in found.mappings()]
            answer = QueryResult(rows=rows, row_count=len(rows))
        else:
            answer = QueryResult(row_count=max(found.rowcount, 0))


async def walked_async(connection: PostgresConnection, steps: Steps[T]) -> T:
    """Do the steps one await at a time."""
    answer: QueryResult | None = None
    while True:
        try:
            sql, params = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        answer = await connection.execute(sql, params)
