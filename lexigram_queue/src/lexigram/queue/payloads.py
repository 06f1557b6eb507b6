"""Payloads to bytes and back, by content type and by the type a handler declares."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import attrs

from lexigram.contracts.queue import BusMessage
from lexigram.contracts.queue.headers import CONTENT_TYPE
from lexigram.queue.errors import UndecodableMessageError
from lexigram.queue.messages import with_payload
from lexigram.serialization import SerializationError, get_codec

BYTES: Final = "application/octet-stream"
_TYPES: Final = {"json": "application/json", "msgpack": "application/msgpack"}
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_ANYTHING: Final = (Any, object)


class Payloads:
    """Encodes for one queue. ``as_objects``: the driver is in this process and takes objects.

    Objects that cannot change are then handed on as they are, others are copied by the codec,
    so that no two groups, and no publisher, share one (``share`` turns that off).
    """

    def __init__(self, serializer: str, *, as_objects: bool = False, share: bool = False) -> None:
        self._serializer = serializer
        self._codec = get_codec(serializer)
        self._codecs = {content: get_codec(name) for name, content in _TYPES.items()}
        self.content_type = _TYPES.get(serializer, f"application/x-{serializer}")
        self._codecs[self.content_type] = self._codec
        self._as_objects = as_objects
        self._share = share
        self._hands_on = as_objects and share

    def as_bytes(self) -> Payloads:
        """The same for a place outside this process."""
        return Payloads(self._serializer) if self._as_objects else self

    def encode(self, message: BusMessage, topic: str) -> BusMessage:
        """The message as the driver gets it; raises SerializationError."""
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
            return message if message.topic == topic else _moved(message, topic)
        if message.headers:
            headers = {**message.headers, CONTENT_TYPE: self.content_type}
        else:
            headers = {CONTENT_TYPE: self.content_type}
        return with_payload(message, self._codec.encode(payload), headers, topic)

    def decode(self, message: BusMessage, kind: Any) -> BusMessage:
        """The message as the handler gets it; raises UndecodableMessageError."""
        payload = message.payload
        if payload.__class__ is not bytes:
            if kind in _ANYTHING or payload.__class__ is kind:
                return message
            payload = self._codec.encode(payload)
            content: str | None = self.content_type
        else:
            content = message.headers.get(CONTENT_TYPE)
        value = self._value(message, payload, content, kind)
        return with_payload(message, value, message.headers, message.topic)

    def _value(self, message: BusMessage, body: bytes, content: str | None, kind: Any) -> Any:
        codec = self._codec
        if content is not None:
            known = self._codecs.get(content)
            if known is None:
                known = self._codecs.get(_plain(content))
            if known is None and (kind in _ANYTHING or kind is bytes):
                return body.decode("utf-8") if content.startswith("text/") else body
            codec = known or codec
        elif not body and kind in _ANYTHING:
            return None  # a foreign producer that says nothing
        try:
            return codec.decode(body, kind)
        except SerializationError as error:
            raise UndecodableMessageError(
                f"the payload of message {message.id} is no {_show(kind)}: {error.message}",
                topic=message.topic,
                details={"message_id": message.id, "content_type": content, **error.details},
                hint="fix the producer, or the type the handler declares, then redrive it",
            ) from error


def _moved(message: BusMessage, topic: str) -> BusMessage:
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
