"""Dead letters kept in memory, for code that has no broker to keep them.

The bus itself sets messages aside on its broker: see ``lexigram.queue.DeadLetters``.
"""

from __future__ import annotations

from collections import deque

from lexigram.contracts.queue import BusMessage, DeadLetterEntry

__all__ = ["DeadLetterEntry", "DeadLetterQueue"]


class DeadLetterQueue:
    """The last ``max_size`` failures of this process; the oldest goes first, and is counted."""

    def __init__(self, max_size: int = 1000) -> None:
        if max_size < 1:
            raise ValueError(f"max_size must be at least 1, not {max_size}")
        self.max_size = max_size
        self.evicted = 0
        self._entries: deque[DeadLetterEntry] = deque()

    @property
    def size(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    async def push(self, message: BusMessage, error: str | BaseException) -> None:
        """Keep the message with its error; its retry_count is kept too."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self._entries.append(
            DeadLetterEntry(message=message, error=text, retry_count=message.retry_count)
        )
        while len(self._entries) > self.max_size:
            self._entries.popleft()
            self.evicted += 1

    async def drain(self) -> list[DeadLetterEntry]:
        """All entries, oldest first; they are gone from here."""
        drained, self._entries = list(self._entries), deque()
        return drained
