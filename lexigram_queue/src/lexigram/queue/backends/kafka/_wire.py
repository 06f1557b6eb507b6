"""Messages as records of Kafka: headers of CloudEvents beside the bare body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from attrs import frozen

from lexigram.contracts.queue import BusMessage, DeadLetterEntry
from lexigram.contracts.queue.headers import BEGUN, UNREADABLE
from lexigram.contracts.queue.limits import read_moment
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.runtime.envelope import SHOWN, as_text, from_dead_headers, from_headers

if TYPE_CHECKING:
    from confluent_kafka import Message


NAME: Final = "kafka"
PREFIX: Final = "ce_"  # of CloudEvents in the binding for Kafka
OWN: Final = "lex-"  # headers of the driver itself, never of a message
NOT_BEFORE: Final = "lex-not-before"


def library() -> Any:
    """The client library."""
    return require_library("confluent_kafka", extra="kafka")


@frozen
class OutboundRecord:
    """One record to be written."""

    topic: str
    value: bytes | None
    headers: Mapping[str, str]
    key: bytes | None = None
    partition: int = -1  # by key

    @property
    def size(self) -> int:
        """Bytes of the record, a little more than on the wire."""
        texts = sum(
            len(name.encode()) + len(text.encode()) + 8 for name, text in self.headers.items()
        )
        return len(self.value or b"") + len(self.key or b"") + texts + 64


def read_message(raw: Message, topic: str) -> tuple[BusMessage, float]:
    """The message in a record, and when it may be delivered."""
    headers = headers_of(raw)
    not_before = 0.0
    if NOT_BEFORE in headers:
        text = as_text(headers[NOT_BEFORE])
        moment = read_moment(text)
        if moment is None:
            headers[UNREADABLE] = f"{NOT_BEFORE} {text[:SHOWN]!a}"
        else:
            not_before = moment
    own = [name for name in headers if name.startswith(OWN) and name != BEGUN]
    for name in own:
        del headers[name]
    fallback = f"{raw.topic()}:{raw.partition()}:{raw.offset()}"
    message = from_headers(
        headers, raw.value() or b"", topic=topic, fallback_id=fallback, prefix=PREFIX
    )
    return message, not_before


def headers_of(raw: Message) -> dict[str, Any]:
    """As the last of equal names has it."""
    try:
        return dict(cast("Any", raw.headers() or ()))
    except (UnicodeDecodeError, SystemError) as error:
        # The client makes text of the names in C, and other clients write any bytes there.
        return {UNREADABLE: f"a name of a header: {error!r:.100}"}


def read_entry(raw: Message, topic: str) -> DeadLetterEntry:
    headers = headers_of(raw)
    ours = {name: text for name, text in headers.items() if not name.startswith(OWN)}
    fallback = f"{raw.topic()}:{raw.offset()}"
    return from_dead_headers(
        ours, raw.value() or b"", topic=topic, fallback_id=fallback, prefix=PREFIX
    )


def key_of(identity: str) -> bytes:
    return identity.encode("utf-8", "surrogatepass")
