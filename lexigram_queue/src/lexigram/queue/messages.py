"""Copies of a message with some fields changed, fast: this is on the way of every message."""

from __future__ import annotations

from typing import Any, cast

from lexigram.contracts.queue import BusMessage


class _Open(BusMessage):
    """A message before it is frozen. Plain assignment: 1 µs a copy, the constructor takes 2.5.

    Both of these, or the interpreter looks each of them up at every assignment.
    """

    __slots__ = ()
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__


def with_payload(
    message: BusMessage, payload: Any, headers: dict[str, str], topic: str
) -> BusMessage:
    """The same message with another payload, headers and topic."""
    copy = cast("Any", object.__new__(_Open))
    copy.id = message.id
    copy.topic = topic
    copy.payload = payload
    copy.headers = headers
    copy.timestamp = message.timestamp
    copy.ttl = message.ttl
    copy.priority = message.priority
    copy.delivery_guarantee = message.delivery_guarantee
    copy.retry_count = message.retry_count
    copy.max_retries = message.max_retries
    copy.__class__ = BusMessage  # from here on it cannot be changed
    return cast("BusMessage", copy)
