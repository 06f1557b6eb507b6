"""Request and reply over the bus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from lexigram.contracts.queue import BusMessage
from lexigram.contracts.queue.headers import CORRELATION_ID, REPLY_TO
from lexigram.queue.errors import ReplyTimeoutError

Publish = Callable[[str, BusMessage], Awaitable[BusMessage]]
Listen = Callable[[str, Callable[[BusMessage], Awaitable[None]]], Awaitable[None]]


class Requests:
    """The requests of one queue; replies arrive on a temporary topic of this process."""

    def __init__(self, publish: Publish, listen: Listen) -> None:
        self._publish, self._listen = publish, listen
        self._waiting: dict[str, asyncio.Future[BusMessage]] = {}
        self._topic: str | None = None
        self._opening = asyncio.Lock()

    async def ask(self, topic: str, message: BusMessage, timeout: float) -> BusMessage:
        """Send a request and return the first reply; raises ReplyTimeoutError.

        The request expires with the timeout, so that no consumer handles it later.
        """
        reply_to = await self._open()
        headers = {**message.headers, REPLY_TO: reply_to, CORRELATION_ID: message.id}
        ttl = timeout if message.ttl is None else min(timeout, message.ttl)
        question = replace(message, headers=headers, ttl=ttl, timestamp=time.time())
        answer: asyncio.Future[BusMessage] = asyncio.get_running_loop().create_future()
        self._waiting[message.id] = answer
        try:
            async with asyncio.timeout(timeout):
                await self._publish(topic, question)
                return await answer
        except TimeoutError:
            raise ReplyTimeoutError(
                f"no reply to {message.id} on {topic} within {timeout:g} s",
                topic=topic,
                details={"message_id": message.id, "timeout": timeout},
                hint="check that a consumer of the topic is running and replies",
            ) from None
        finally:
            self._waiting.pop(message.id, None)

    async def _open(self) -> str:
        async with self._opening:
            if self._topic is None:
                topic = f"reply.{uuid4().hex}"
                await self._listen(topic, self._accept_answer)
                self._topic = topic
        return self._topic

    async def _accept_answer(self, message: BusMessage) -> None:
        waiting = self._waiting.get(message.headers.get(CORRELATION_ID, ""))
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


def reply_to(question: BusMessage, payload: Any) -> tuple[str, BusMessage] | None:
    """Topic and message of the reply; None when the message expects none."""
    topic = question.headers.get(REPLY_TO)
    if topic is None:
        return None
    headers = {CORRELATION_ID: question.headers.get(CORRELATION_ID, question.id)}
    return topic, BusMessage(topic=topic, payload=payload, headers=headers)
