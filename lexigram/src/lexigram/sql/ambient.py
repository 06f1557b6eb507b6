"""The transaction a task is in: found by the code of that task, refused to all others."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from lexigram.sql.errors import TransactionScopeError

if TYPE_CHECKING:
    from lexigram.sql.transaction import Transaction

# Child tasks inherit it, which is how their misuse is noticed.
_open: ContextVar[tuple[Transaction, ...]] = ContextVar("lexigram_sql_transactions", default=())


def enter(transaction: Transaction) -> None:
    """Make it the transaction of this task."""
    _open.set((*_open.get(), transaction))


def leave(transaction: Transaction) -> None:
    """Forget it in this context; copies of the context still know it."""
    _open.set(tuple(entry for entry in _open.get() if entry is not transaction))


def open_transaction(database: object, resource: str) -> Transaction | None:
    """The open transaction of this task on the database, or None outside of any."""
    for transaction in _open.get():
        if transaction.database is database:
            transaction.check_usable()
            return transaction
        if transaction.resource == resource and not transaction.ended:
            raise TransactionScopeError(
                "this task holds the writer of the database file in a transaction of another"
                " Database object and would wait for itself",
                details={"resource": resource},
                hint="use one Database per file",
            )
    return None


def this_task() -> asyncio.Task[Any] | None:
    """The running task, as the owner of a transaction."""
    return asyncio.current_task()
