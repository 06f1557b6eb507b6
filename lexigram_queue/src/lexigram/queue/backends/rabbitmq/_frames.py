"""Frames of a RabbitMQ connection, with headers as data.

The client ends the connection at properties that it cannot decode: a time beyond the calendar, text
that is not UTF-8, tables inside each other without end. The broker takes them from any producer and
delivers the message again to the next connection, for ever. So they are looked at before.
"""

from __future__ import annotations

from typing import Any, Final

from lexigram.queue.backends.libraries import require_library

EXTRA: Final = "rabbitmq"
# Stands in a property that nobody uses, where the properties of a message could not be decoded.
UNDECODABLE: Final = "?"
_KIND_OF_HEADERS: Final = b"\x02"
_FIXED: Final = 12  # bytes before the properties: class, weight, size of the body
_MARK: Final = b"\x00\x04\x01?"  # the properties: cluster_id and no other


class Transport:
    """Opens connections for the client, by the client's own means."""

    def __init__(self, *, tls: bool) -> None:
        library = require_library("aiormq.connection", extra=EXTRA)
        self._real = library.TLSTransportFactory() if tls else library.TCPTransportFactory()

    async def create(self, url: Any, **options: Any) -> tuple[Any, Any]:
        reader, writer = await self._real.create(url, **options)
        return Frames(reader), writer


class Frames:
    """A stream as the client reads it: a byte that says what comes, six more, then the rest."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._part = 0
        self._kind = b""
        self._header = require_library("pamqp.header", extra=EXTRA).ContentHeader

    def at_eof(self) -> bool:
        return bool(self._stream.at_eof())

    async def read(self, size: int = -1) -> bytes:
        data: bytes = await self._stream.read(size)
        return data

    async def readexactly(self, size: int) -> bytes:
        data: bytes = await self._stream.readexactly(size)
        self._part += 1
        if self._part == 1:
            self._kind = data
        elif self._part > 2:
            self._part = 0
            if self._kind == _KIND_OF_HEADERS:
                return self._decodable(data)
        return data

    def _decodable(self, data: bytes) -> bytes:
        """The frame, or one of the same length with a mark. 12 µs of the 450 that a message takes."""
        try:
            self._header().unmarshal(data[:-1])
        except Exception:  # noqa: BLE001 - whatever the client stumbles over
            kept = data[:_FIXED] + _MARK
            return kept + bytes(len(data) - len(kept) - 1) + data[-1:]
        return data
