"""Write what must not be lost although the database is away for a while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from lexigram import clock
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.leasing import Backoff
from lexigram.sql.errors import is_file_lost, is_transient
from lexigram.workflow.durable.errors import DurableError

T = TypeVar("T")

_AGAIN = Backoff(first=0.05, cap=5.0)


def is_outage(error: DurableError) -> bool:
    """True when the store did not refuse anything: it could not be reached, or was locked."""
    cause = error.__cause__
    return isinstance(cause, DatabaseError) and is_transient(cause)


async def persist(write: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Repeat ``write`` until the store answers, however long it is out of reach.

    A write that the store refuses is retried for so many seconds, then its error is raised; that of
    a file that was deleted or replaced is raised at once. Whether
    the writer still has its lease is for the store to say: after an outage nobody may have taken it.
    """
    give_up = clock.monotonic() + seconds
    tries = 0
    while True:
        try:
            return await write()
        except DurableError as error:
            if is_file_lost(error) or (not is_outage(error) and clock.monotonic() >= give_up):
                raise
            tries += 1
        await anyio.sleep(_AGAIN.delay(tries))
