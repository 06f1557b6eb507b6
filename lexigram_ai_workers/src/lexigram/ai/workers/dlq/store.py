"""The protocol of dead-letter stores, and the in-memory store."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from lexigram.ai.workers.dlq.dead_letter import DeadLetterState, StoredDeadLetter
from lexigram.ai.workers.types import FailureCategory

# Maps the old state to the new state: the same object is no change, None removes it.
Change: TypeAlias = Callable[[StoredDeadLetter | None], StoredDeadLetter | None]


class DeadLetterStore(Protocol):
    """Stores dead letters by source and id, and counts of actions."""

    async def change(
        self, source: str, dead_letter_id: str, change: Change
    ) -> StoredDeadLetter | None:
        """Replace a dead letter by ``change(old)`` atomically, and return it.

        ``change`` may be called more than once; the last call counts.
        """
        ...

    async def find(
        self,
        *,
        dead_letter_id: str | None = None,
        source: str | None = None,
        states: Collection[DeadLetterState] = tuple(DeadLetterState),
        category: FailureCategory | None = None,
        due_before: float | None = None,
        unnotified: bool = False,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[StoredDeadLetter]:
        """Find dead letters, latest failure first.

        ``due_before`` selects those with a due retry, ``unnotified`` those that failed permanently
        and were not reported yet.
        """
        ...

    async def counts(self) -> Mapping[tuple[str, str], int]:
        """Count dead letters by category and state."""
        ...

    async def increment(self, name: str, amount: int = 1) -> None:
        """Increase a counter, which is independent of the stored dead letters."""
        ...

    async def statistics(self) -> Mapping[str, int]:
        """Return all counters."""
        ...


class MemoryDeadLetterStore:
    """Implements DeadLetterStore in memory."""

    def __init__(self) -> None:
        self._dead_letters: dict[tuple[str, str], StoredDeadLetter] = {}
        self._statistics: Counter[str] = Counter()

    async def change(
        self, source: str, dead_letter_id: str, change: Change
    ) -> StoredDeadLetter | None:
        """Replace a dead letter."""
        new = change(self._dead_letters.get((source, dead_letter_id)))
        if new is None:
            self._dead_letters.pop((source, dead_letter_id), None)
        else:
            self._dead_letters[source, dead_letter_id] = new
        return new

    async def find(
        self,
        *,
        dead_letter_id: str | None = None,
        source: str | None = None,
        states: Collection[DeadLetterState] = tuple(DeadLetterState),
        category: FailureCategory | None = None,
        due_before: float | None = None,
        unnotified: bool = False,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[StoredDeadLetter]:
        """Find dead letters, latest failure first."""
        wanted = (
            dead_letter
            for dead_letter in self._dead_letters.values()
            if dead_letter_id in {None, dead_letter.id}
            and source in {None, dead_letter.source}
            and dead_letter.state in states
            and category in {None, dead_letter.category}
            and (due_before is None or dead_letter.is_due(due_before))
            and (not unnotified or dead_letter.needs_notification)
        )
        page = heapq.nlargest(offset + limit, wanted, key=_latest)
        return page[offset:]

    async def counts(self) -> Mapping[tuple[str, str], int]:
        """Count dead letters by category and state."""
        kinds = ((each.category.value, each.state.value) for each in self._dead_letters.values())
        return dict(Counter(kinds))

    async def increment(self, name: str, amount: int = 1) -> None:
        """Increase a counter."""
        self._statistics[name] += amount

    async def statistics(self) -> Mapping[str, int]:
        """Return all counters."""
        return dict(self._statistics)


def _latest(dead_letter: StoredDeadLetter) -> tuple[float, str, str]:
    return dead_letter.last_failure, dead_letter.id, dead_letter.source
