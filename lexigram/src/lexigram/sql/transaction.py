"""An interactive transaction: one hop per statement, owned by the task that opened it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio

from lexigram.contracts.data.sql.database import QueryResult
from lexigram.sql import ambient, statements
from lexigram.sql.errors import TransactionScopeError

if TYPE_CHECKING:
    from lexigram.sql.database import Database
    from lexigram.sql.steps import Steps

T = TypeVar("T")

ROLLBACK_SECONDS = 5.0  # a cancelled task waits this long for its rollback, then it is cut off


class Session(Protocol):
    """What a backend keeps open for a transaction."""

    async def begin(self) -> None:
        """Start; nothing is held when it raises."""

    async def execute(self, sql: str, params: Sequence[Any]) -> QueryResult:
        """One statement with ``?`` placeholders."""
        ...

    async def run(self, fn: Callable[[Any], Any]) -> Any:
        """Several statements."""
        ...

    async def run_steps(self, steps: Callable[[], Steps[T]]) -> T:
        """Several statements of a generator."""
        ...

    async def commit(self) -> None:
        """End permanently. Raises when it did not happen or is not certain."""

    async def rollback(self) -> None:
        """End as if nothing had been; never raises for a connection that is gone."""


class Transaction:
    """What ``async with db.transaction() as tx`` yields."""

    def __init__(self, database: Database, resource: str, session: Session) -> None:
        self.database = database
        self.resource = resource
        self.ended = False
        self._session = session
        self._owner = ambient.this_task()

    async def execute(self, sql: str, params: Sequence[Any] = ()) -> QueryResult:
        """Run a statement in this transaction."""
        self.check_usable()
        return await self._session.execute(sql, params)

    async def execute_query(self, sql: str, params: Sequence[Any] = ()) -> QueryResult:
        """Run a query in this transaction: it sees what was written here."""
        return await self.execute(sql, params)

    async def execute_insert(self, table: str, data: Mapping[str, Any]) -> QueryResult:
        """Insert one row."""
        return await self.execute(statements.insert(table, tuple(data)), tuple(data.values()))

    async def execute_delete(
        self, table: str, where: str, params: Sequence[Any] = ()
    ) -> QueryResult:
        """Delete the rows that match."""
        return await self.execute(statements.delete(table, where), params)

    async def run(self, fn: Callable[[Any], Any]) -> Any:
        """What ``Database.run`` does, in this transaction."""
        self.check_usable()
        return await self._session.run(fn)

    async def run_steps(self, steps: Callable[[], Steps[T]]) -> T:
        """What ``Database.run_steps`` does, in this transaction."""
        self.check_usable()
        return await self._session.run_steps(steps)

    def check_usable(self) -> None:
        """Raise TransactionScopeError after the end and in every task but the owner."""
        if self.ended:
            raise TransactionScopeError(
                "the transaction has ended",
                hint="a task started inside a transaction keeps it in its context; start the"
                " task before or after the block",
            )
        if ambient.this_task() is not self._owner:
            raise TransactionScopeError(
                "the transaction belongs to the task that opened it",
                hint="do the statements in that task, or start this one outside the block",
            )

    async def begin(self) -> None:
        """Called by the block at its start."""
        await self._session.begin()

    async def end(self, *, commit: bool) -> None:
        """Called by the block at its end; cancellation and errors roll back."""
        self.ended = True
        try:
            if commit:
                await self._session.commit()
                return
        except BaseException:
            await self._roll_back()
            raise
        await self._roll_back()

    async def _roll_back(self) -> None:
        with anyio.move_on_after(ROLLBACK_SECONDS, shield=True):
            await self._session.rollback()


class TransactionBlock:
    """``async with``: opens a transaction, or joins the one the task is in."""

    def __init__(
        self, joined: Callable[[], Transaction | None], fresh: Callable[[], Transaction]
    ) -> None:
        self._joined = joined
        self._fresh = fresh
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> Transaction:
        if (outer := self._joined()) is not None:
            return outer
        transaction = self._fresh()
        await transaction.begin()
        ambient.enter(transaction)
        self._transaction = transaction
        return transaction

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if (transaction := self._transaction) is None:
            return  # joined: the outer block decides
        self._transaction = None
        ambient.leave(transaction)
        await transaction.end(commit=error is None)
