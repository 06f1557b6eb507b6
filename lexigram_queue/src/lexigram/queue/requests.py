"""Ask over the bus and wait for the answer."""

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
    """The questions of one queue; their answers come to a temporary topic of this process."""

    def __init__(self, publish: Publish, listen: Listen) -> None:
        self._publish, self._listen = publish, listen
        self._waiting: dict[str, asyncio.Future[BusMessage]] = {}
        self._topic: str | None = None
        self._opening = asyncio.Lock()

    async def ask(self, topic: str, message: BusMessage, timeout: float) -> BusMessage:
        """The answer of whoever answers first; raises ReplyTimeoutError.

        A question nobody answered expires with the time-out: nobody works on it later.
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
                f"no answer to {message.id} on {topic} within {timeout:g} s",
                topic=topic,
                details={"message_id": message.id, "timeout": timeout},
                hint="is a consumer of the topic running, and does it reply?",
            ) from None
        finally:
            self._waiting.pop(message.id, None)

    async def _open(self) -> str:
        async with self._opening:
            if self._topic is None:
                topic = f"reply.{uuid4().hex}"
                await self._listen(topic, self._answered)
                self._topic = topic
        return self._topic

    async def _answered(self, message: BusMessage) -> None:
        waiting = self._waiting.get(message.headers.get(CORRELATION_ID, ""))
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


def reply_to(question: BusMessage, payload: Any) -> tuple[str, BusMessage] | None:
    """Topic and message of the answer; None when nobody waits for one."""
    topic = question.headers.get(REPLY_TO)
    if topic is None:
        return None
    headers = {CORRELATION_ID: question.headers.get(CORRELATION_ID, question.id)}
    return topic, BusMessage(topic=topic, payload=payload, headers=headers)
