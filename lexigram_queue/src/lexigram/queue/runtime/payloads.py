"""Payloads to bytes and back, by content type and by the type a handler declares."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, cast

import attrs

from lexigram.concurrency import as_failure
from lexigram.contracts.queue import BusMessage
from lexigram.contracts.queue.headers import CONTENT_TYPE, DELIVER_AT, UNREADABLE
from lexigram.contracts.queue.limits import read_moment
from lexigram.queue.errors import UndecodableMessageError
from lexigram.serialization import Codec, SerializationError, SerializerProtocol, get_codec

BYTES: Final = "application/octet-stream"
_TYPES: Final = {"json": "application/json", "msgpack": "application/msgpack"}
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_ANYTHING: Final = (Any, object)
MAX_SHOWN: Final = 60  # characters of a header in an error


class Payloads:
    """Encodes for one queue. ``as_objects``: the driver is in this process and takes objects.

    Objects that cannot change are then handed on as they are, others are copied by the codec,
    so that no two groups, and no publisher, share one (``share`` turns that off).
    """

    def __init__(self, serializer: str, *, as_objects: bool = False, share: bool = False) -> None:
        self._serializer = serializer
        self._codec = _codec(serializer)
        self._codecs = {content: _codec(name) for name, content in _TYPES.items()}
        self.content_type = _TYPES.get(serializer, f"application/x-{serializer}")
        self._codecs[self.content_type] = self._codec
        self._as_objects = as_objects
        self._share = share
        self._hands_on = as_objects and share

    def as_bytes(self) -> Payloads:
        """The same for a place outside this process."""
        return Payloads(self._serializer) if self._as_objects else self

    def encode(self, message: BusMessage, topic: str) -> BusMessage:
        """The message as the driver gets it.

        Raises SerializationError also where a handler without a declared type would get another
        value than was published.
        """
        payload = message.payload
        kind = payload.__class__
        if self._hands_on and kind is not bytes and message.topic == topic:
            return message
        if kind is bytes:
            headers = message.headers
            if CONTENT_TYPE not in headers:
                headers = {**headers, CONTENT_TYPE: BYTES}
            return with_payload(message, payload, headers, topic)
        if self._as_objects and (self._share or kind in _SCALARS or _is_immutable(payload)):
            return message if message.topic == topic else _move(message, topic)
        if message.headers:
            headers = {**message.headers, CONTENT_TYPE: self.content_type}
        else:
            headers = {CONTENT_TYPE: self.content_type}
        return with_payload(message, self._codec.encode(payload), headers, topic)

    def decode(self, message: BusMessage, kind: Any) -> BusMessage:
        """The message as the handler gets it; raises UndecodableMessageError."""
        headers = message.headers
        if headers and (UNREADABLE in headers or DELIVER_AT in headers):
            _check_readable(message)
        return self.decode_payload(message, kind)

    def decode_payload(self, message: BusMessage, kind: Any) -> BusMessage:
        """The same without checking its headers, for inspection."""
        payload = message.payload
        if payload.__class__ is not bytes and (kind in _ANYTHING or payload.__class__ is kind):
            return message
        try:
            value = self._value(message, kind)
        except BaseException as raised:  # codecs and classes of the application may raise anything
            error = as_failure(raised)
            if error is None:
                raise
            text = error.message if isinstance(error, SerializationError) else repr(error)
            facts = error.details if isinstance(error, SerializationError) else {}
            content = message.headers.get(CONTENT_TYPE)
            raise UndecodableMessageError(
                f"the payload of message {message.id} is no {_show(kind)}: {text}",
                topic=message.topic,
                details={"message_id": message.id, "content_type": content, **facts},
                hint="fix the producer, or the type the handler declares, then redrive it",
            ) from raised
        return with_payload(message, value, message.headers, message.topic)

    def _value(self, message: BusMessage, kind: Any) -> Any:
        codec, body = self._codec, message.payload
        if body.__class__ is not bytes:  # an object, and the handler wants another class
            return codec.decode(codec.encode(body), kind)
        content = message.headers.get(CONTENT_TYPE)
        if content is not None:
            known = self._codecs.get(content)
            if known is None:
                known = self._codecs.get(_plain(content))
            if known is None and (kind in _ANYTHING or kind is bytes):
                return body.decode("utf-8") if content.startswith("text/") else body
            codec = known or codec
        elif not body and kind in _ANYTHING:
            return None  # a foreign producer without content
        return codec.decode(body, kind)


def _codec(serializer: str) -> SerializerProtocol:
    """Refuse values that would not decode equal; other codecs decide that themselves."""
    codec = get_codec(serializer)
    return codec.lossless if isinstance(codec, Codec) else codec


def _check_readable(message: BusMessage) -> None:
    """Raise where a header that means something to the bus could not be read."""
    problem = message.headers.get(UNREADABLE)
    at = message.headers.get(DELIVER_AT)
    if at is not None and read_moment(at) is None:
        problem = f"{DELIVER_AT} {at[:MAX_SHOWN]!a}" if problem is None else problem
    if problem is not None:
        raise UndecodableMessageError(
            f"message {message.id} has headers that cannot be read: {problem}",
            topic=message.topic,
            details={"message_id": message.id, "headers": problem},
            hint="fix the producer and let it publish the message again",
        )


def _move(message: BusMessage, topic: str) -> BusMessage:
    return with_payload(message, message.payload, message.headers, topic)


def _plain(content: str) -> str:
    """``application/cloudevents+json; charset=utf-8`` is JSON too."""
    name = content.partition(";")[0].strip().lower()
    return "application/json" if name.endswith("+json") else name


def _is_immutable(value: Any) -> bool:
    kind = value.__class__
    if kind is dict or kind is list:
        return False
    if kind in _SCALARS or kind is bytes:
        return True
    if kind is tuple or kind is frozenset:
        return all(_is_immutable(item) for item in value)
    if attrs.has(kind):
        frozen = kind.__setattr__ is not object.__setattr__
        return frozen and all(_is_immutable(getattr(value, f.name)) for f in attrs.fields(kind))
    params = getattr(kind, "__dataclass_params__", None)
    if params is None or not params.frozen:
        return False
    return all(_is_immutable(getattr(value, item.name)) for item in dataclasses.fields(value))


def _show(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


# Copies, fast: they are on the way of every message.


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
