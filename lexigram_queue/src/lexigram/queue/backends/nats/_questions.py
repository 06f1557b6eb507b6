"""Questions to the server, and the answers that end them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from lexigram.queue.backends.nats._errors import (
    ApiError,
    Failure,
    description_of,
    refusal,
    status_of,
)

if TYPE_CHECKING:
    from nats.aio.msg import Msg
CONFLICT: Final = 409  # the consumer or the server goes, or too many wait
HEARTBEAT: Final = 100


class Question:
    """Something that waits for answers."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(self, message: Msg, rest: str) -> None:
        """Take an answer; ``rest`` says which, where there are several."""

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # who asked may be gone: nobody must be warned of it


class One(Question):
    def answer(self, message: Msg, rest: str) -> None:
        if not self.done.done():
            self.done.set_result(message)


class Confirms(Question):
    def __init__(self, subject: str, number: int) -> None:
        super().__init__(subject)
        self.open = set(range(number))
        self.failures: dict[int, Failure] = {}

    def answer(self, message: Msg, rest: str) -> None:
        at = int(rest)
        self.open.discard(at)
        failure = refusal(message)
        if failure is not None:
            self.failures[at] = failure
        if not self.open and not self.done.done():
            self.done.set_result(None)


class Pull(Question):
    def __init__(self, subject: str, consumer: str, batch: int) -> None:
        super().__init__(subject)
        self.consumer, self.left = consumer, batch
        self.messages: list[Msg] = []

    def take(self, message: Msg) -> None:
        if message.reply:
            self.messages.append(message)
            if self.left <= 0:
                self.stop()
        elif status_of(message) == CONFLICT and "deleted" in description_of(message).lower():
            self.fail(ApiError(CONFLICT, 0, description_of(message)))
        else:
            self.stop()  # no more for now

    def is_end(self, message: Msg) -> bool:
        """Count; True when the server sends no more for this pull."""
        if message.reply:
            self.left -= 1
        elif status_of(message) != HEARTBEAT:
            return True
        return self.left <= 0

    def stop(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
