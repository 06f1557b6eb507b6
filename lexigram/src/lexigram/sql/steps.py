"""Several statements written once for both databases, as a generator."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from lexigram.contracts.data.sql.database import QueryResult

T = TypeVar("T")


class Many(list[Any]):
    """As parameters: the statement is done for each item of it, without rows in return.

    An item has values for ``?``; on SQLite it may be a mapping for ``:name``.
    """


Step: TypeAlias = tuple[str, Sequence[Any]]
Steps: TypeAlias = Generator[Step, QueryResult, T]


def run_steps_sync(execute: Callable[[str, Sequence[Any]], QueryResult], steps: Steps[T]) -> T:
    """Do the steps in the calling thread."""
    answer: QueryResult | None = None
    while True:
        try:
            sql, params = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        answer = execute(sql, params)
