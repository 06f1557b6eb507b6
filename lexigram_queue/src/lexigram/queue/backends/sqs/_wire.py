"""What the bus looks like on SQS: names of queues, and messages as bodies and attributes.

SQS takes ten attributes, none of them empty, and bodies of text. So the headers others look at
are attributes of their own, and the rest is one attribute of JSON; a body that is no text is
base64, and says so.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from math import ceil
from typing import Any, Final, TypeAlias, cast

from attrs import field, frozen

from lexigram import clock
from lexigram.contracts.queue import BusMessage, DeadLetterEntry, DeadLetterReason
from lexigram.contracts.queue.headers import (
    CONTENT_TYPE,
    DELIVER_AT,
    FAIRNESS_KEY,
    ORDERING_KEY,
    UNREADABLE,
)
from lexigram.contracts.queue.limits import read_moment
from lexigram.queue.backends.clouds import json_object
from lexigram.queue.errors import SQSQueueError
from lexigram.queue.runtime.envelope import (
    SHOWN,
    as_text,
    dead_headers,
    delay_of,
    from_dead_headers,
    from_headers,
    mark_unreadable,
    redriven,
    to_headers,
)
from lexigram.queue.runtime.topics import is_pattern

Json: TypeAlias = dict[str, Any]

LARGEST: Final = 1024 * 1024  # bytes of a message or a batch, attributes included; of the service
HEADERS: Final = 96 * 1024  # bytes left for attributes: what a dead letter adds is in it
OWN_HEADERS: Final = 32 * 1024
MOST_ATTRIBUTES: Final = 10
BATCH: Final = 10  # messages in one request

LONGEST_DELAY: Final = 900  # seconds SQS itself delays a message
LONGEST_LEASE: Final = 12 * 3600  # seconds a message can be hidden after it was received
RETENTION: Final = 14 * 24 * 3600  # seconds, the longest
LATEST: Final = RETENTION - 24 * 3600.0  # seconds; later ones might be dropped before they are due

PACKED: Final = "lexigram-headers"
DUE: Final = "lexigram-due"  # not to be delivered before, where DelaySeconds does not reach
ENCODING: Final = "lexigram-encoding"
BLOB: Final = "lexigram-blob"  # path, hash: the body is in the blob store
# Attributes of their own, before all others.
FIRST: Final = ("ce-id", "ce-type", "ce-source", "ce-specversion", "ce-time", CONTENT_TYPE)
TAG_LENGTH: Final = 256
TAGS: Final = 8  # of one name


# Names.


@frozen(kw_only=True)
class Place:
    """The queues of one group. Their names alone show a publisher the groups of a topic."""

    prefix: str
    topic: str
    group: str
    fifo: bool

    @property
    def queue(self) -> str:
        kind = "p" if is_pattern(self.topic) else "t"
        return self._name(f"group-{kind}{_hash(self.topic)}-{_hash(self.group)}", self.group)

    @property
    def dead(self) -> str:
        return self._name(f"dead-{_hash(self.topic)}-{_hash(self.group)}", self.group)

    @property
    def keeper(self) -> str:
        """Where a topic without a group keeps its messages."""
        return self._name(f"kept-{_hash(self.topic)}", self.topic)

    @property
    def tags(self) -> dict[str, str]:
        return _tags("topic", self.topic) | _tags("group", self.group)

    def _name(self, middle: str, label: str) -> str:
        label = re.sub(r"[^a-zA-Z0-9_-]+", "-", label)[-20:].strip("-")
        return f"{self.prefix}-{middle}-{label}{'.fifo' if self.fifo else ''}"


def groups_prefix(prefix: str) -> str:
    """How the queues of all groups begin."""
    return f"{prefix}-group-"


def topic_mark(topic: str) -> str:
    """Stands in the name of every queue whose group has this topic, after ``groups_prefix``."""
    return f"t{_hash(topic)}-"


def is_for_patterns(queue: str, prefix: str) -> bool:
    """Whether the queue belongs to a group that has a pattern, which only its tags tell."""
    return queue.startswith(f"{groups_prefix(prefix)}p")


def from_tags(tags: Mapping[str, str]) -> tuple[str, str] | None:
    """Topic and group; None for a queue of another program."""
    topic, group = (_from_tags(name, tags) for name in ("topic", "group"))
    return None if topic is None or group is None else (topic, group)


def _tags(name: str, text: str) -> dict[str, str]:
    safe = _UNSAFE.sub(lambda found: "".join(f"={byte:02X}" for byte in _utf8(found[0])), text)
    parts = [safe[start : start + TAG_LENGTH] for start in range(0, len(safe), TAG_LENGTH)] or [""]
    if len(parts) > TAGS:
        raise SQSQueueError(
            f"the name of the {name} needs {len(parts)} tags, and only {TAGS} are kept for it",
            topic=text[:100],
            hint="use shorter names of topics and groups",
        )
    return {f"lexigram-{name}-{number}": part for number, part in enumerate(parts)}


def _from_tags(name: str, tags: Mapping[str, str]) -> str | None:
    if f"lexigram-{name}-0" not in tags:
        return None
    text = "".join(tags.get(f"lexigram-{name}-{number}", "") for number in range(TAGS))
    raw = re.sub(rb"=([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


_UNSAFE: Final = re.compile(r"[^A-Za-z0-9 _.:/+@-]+")  # what a tag may hold, and = is the escape


def _hash(text: str) -> str:
    """65 bits, in characters a name may have."""
    return base64.b32encode(sha256(_utf8(text)).digest()).decode().lower()[:13]


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# Out.


@frozen(kw_only=True)
class Content:
    """A body as SQS takes it, and the marks of its encoding."""

    text: str
    marks: Mapping[str, str] = field(factory=dict[str, str])

    @property
    def blob(self) -> str | None:
        """The path in the blob store, where the body is there."""
        found = _reference(self.marks.get(BLOB))
        return None if found is None else found[0]


def inline(payload: bytes) -> Content:
    """The body itself: text where it is text."""
    if not payload:
        return Content(text="-", marks={ENCODING: "empty"})  # SQS takes no empty body
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        pass
    else:
        if _is_valid(text):
            return Content(text=text)
    return Content(text=base64.b64encode(payload).decode(), marks={ENCODING: "base64"})


def reference(path: str, payload: bytes) -> Content:
    """A claim check: the body is in the blob store."""
    facts = {"path": path, "sha256": sha256(payload).hexdigest(), "size": len(payload)}
    text = json.dumps(facts)
    return Content(text=text, marks={BLOB: text})


def wire(
    message: BusMessage,
    content: Content,
    queue: str,
    *,
    delay: float = 0.0,
    dedup: str | None = None,
    dead: DeadLetterEntry | None = None,
) -> Json:
    """A message for one queue, without its number in a batch.

    ``dedup``: what tells a copy of ours (a retry, a redriven one) from the message itself.
    """
    headers = {**(to_headers(message) if dead is None else dead_headers(dead)), **content.marks}
    made: Json = {"MessageBody": content.text}
    now = clock.timestamp()
    delay = max(delay, delay_of(message, now)) if dead is None else 0.0
    fifo = queue.endswith(".fifo")
    if fifo:
        key = None if dead else message.headers.get(ORDERING_KEY)
        # Without a key it waits for nobody: a group of its own.
        made["MessageGroupId"] = _fit(f"key {key}" if key else f"id {message.id}")
        made["MessageDeduplicationId"] = _fit(dedup or message.id)
    else:
        tenant = message.headers.get(FAIRNESS_KEY)
        if tenant:
            made["MessageGroupId"] = _fit(tenant)  # a fair queue, where SQS makes it one
        if delay > 0 and dead is None:
            made["DelaySeconds"] = min(LONGEST_DELAY, ceil(delay))
    if delay > (0 if fifo else LONGEST_DELAY):
        headers[DUE] = repr(now + delay)
    made["MessageAttributes"] = _attributes(headers)
    return made


def size(made: Json) -> int:
    """Bytes as SQS counts them."""
    total = len(_utf8(made["MessageBody"]))
    for name, attribute in made["MessageAttributes"].items():
        total += len(name) + len(attribute["DataType"]) + len(_utf8(attribute["StringValue"]))
    return total


def batches(entries: Sequence[Json]) -> Iterator[list[Json]]:
    """As few requests as their number and size allow, in order."""
    batch: list[Json] = []
    room = LARGEST
    for made in entries:
        needed = size(made)
        if batch and (len(batch) == BATCH or needed > room):
            yield batch
            batch, room = [], LARGEST
        batch.append(made)
        room -= needed
    if batch:
        yield batch


def header_bytes(message: BusMessage) -> int:
    """Roughly what the attributes need."""
    return sum(len(name) + len(json.dumps(text)) for name, text in to_headers(message).items())


def _attributes(headers: Mapping[str, str]) -> Json:
    wanted = [name for name in FIRST if name in headers]
    wanted += [name for name in headers if name not in wanted]
    plain = [name for name in wanted if _is_nameable(name) and _is_valid(headers[name])]
    if len(plain) < len(wanted) or len(wanted) > MOST_ATTRIBUTES:
        plain = plain[: MOST_ATTRIBUTES - 1]
    rest = {name: headers[name] for name in wanted if name not in plain}
    texts = {name: headers[name] for name in plain}
    if rest:
        texts[PACKED] = json.dumps(rest)  # ASCII: nothing SQS refuses
    return {name: {"DataType": "String", "StringValue": text} for name, text in texts.items()}


def _is_nameable(name: str) -> bool:
    if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", name) or len(name) > 256:
        return False
    return not name.lower().startswith(("aws.", "amazon.")) and name != PACKED


def _is_valid(text: str) -> bool:
    """Whether SQS takes it: not empty, characters of XML."""
    return bool(text) and _NOT_XML.search(text) is None


_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _fit(text: str) -> str:
    """An id as SQS takes it; others by their hash."""
    plain = re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", text)
    return text if plain else sha256(_utf8(text)).hexdigest()


# In.


@frozen(kw_only=True)
class Received:
    """One message as it came, with its headers unpacked."""

    id: str
    handle: str
    text: str
    headers: Mapping[str, str]
    count: int
    sent: float  # seconds since 1970
    key: str | None = None  # of a FIFO queue: its messages come one after the other

    @property
    def due(self) -> float | None:
        return read_moment(self.headers.get(DUE, ""))

    @property
    def since(self) -> float:
        """When it could first be delivered."""
        wanted = read_moment(self.headers.get(DELIVER_AT, ""))
        return max(self.sent, self.due or 0.0, wanted or 0.0)

    @property
    def blob(self) -> tuple[str, str] | None:
        """Path and hash of a body that is in the blob store."""
        return _reference(self.headers.get(BLOB))

    @property
    def content(self) -> Content:
        """The body as it came, for a copy of the message."""
        marks = {name: self.headers[name] for name in (ENCODING, BLOB) if name in self.headers}
        return Content(text=self.text, marks=marks)

    def deliveries(self, *, fifo: bool) -> int:
        """How often it was delivered: without the times it only waited to be due.

        A message with a key may be taken and given back up to nine times before its turn comes:
        those are never counted, so that what waits is not taken for poison.
        """
        count, due = self.count, self.due
        if due is not None:
            waited = due - self.sent - (0 if fifo else LONGEST_DELAY)
            count -= max(0, ceil(waited / LONGEST_LEASE))
        if fifo and ORDERING_KEY in self.headers:
            count -= BATCH - 1
        return max(1, count)

    def payload(self, stored: bytes | None = None) -> bytes:
        """The body: ``stored`` where it was in the blob store."""
        if stored is not None:
            return stored
        return _decode(self.text, self.headers.get(ENCODING))[0]

    def message(self, topic: str, payload: bytes, problem: str | None = None) -> BusMessage:
        """The message; one that an operator moved out of the dead letters begins anew.

        ``problem``: why its body is not to be had.
        """
        headers = self._bare(problem)
        if "dead-reason" in headers:
            found = from_dead_headers(headers, payload, topic=topic, fallback_id=self.id).message
            again = redriven(found)
            if UNREADABLE in found.headers:  # nobody reads these headers again
                again.headers[UNREADABLE] = found.headers[UNREADABLE]
            return again
        return from_headers(headers, payload, topic=topic, fallback_id=self.id)

    def dead_entry(self, topic: str, group: str, payload: bytes) -> DeadLetterEntry:
        """A dead letter, also one that SQS set aside itself."""
        headers = self._bare()
        if "dead-reason" in headers:
            return from_dead_headers(headers, payload, topic=topic, fallback_id=self.id)
        message = from_headers(headers, payload, topic=topic, fallback_id=self.id)
        return DeadLetterEntry(
            message=message,
            error=f"received {self.count} times, and never settled",
            failed_at=datetime.fromtimestamp(self.sent, UTC),
            retry_count=message.retry_count,
            reason=DeadLetterReason.POISON,
            attempts=message.retry_count,
            group=group,
        )

    def _bare(self, problem: str | None = None) -> dict[str, str]:
        """The headers without those of this driver, and with what of those cannot be read."""
        ours = (DUE, ENCODING, BLOB, PACKED)
        bare = {name: text for name, text in self.headers.items() if name not in ours}
        wrong = [PACKED] if PACKED in self.headers else list[str]()
        if DUE in self.headers and self.due is None:
            wrong.append(DUE)
        if BLOB in self.headers and self.blob is None:
            wrong.append(BLOB)
        elif BLOB not in self.headers and not _decode(self.text, self.headers.get(ENCODING))[1]:
            wrong.append(ENCODING)
        parts = [f"{name} {self.headers.get(name, '')[:SHOWN]!a}" for name in wrong]
        if problem is not None:
            parts.append(problem)
        if parts:
            mark_unreadable(bare, *parts)
        return bare


def read_received(raw: Mapping[str, Any]) -> Received:
    """One message of ReceiveMessage; nothing here raises."""
    attributes: Mapping[str, Json] = raw.get("MessageAttributes") or {}
    headers = {name: _text(attribute) for name, attribute in attributes.items()}
    if PACKED in headers and (rest := _unpack(headers[PACKED])) is not None:
        del headers[PACKED]
        headers |= rest
    facts: Mapping[str, str] = raw.get("Attributes") or {}
    return Received(
        id=raw["MessageId"],
        handle=raw["ReceiptHandle"],
        text=raw.get("Body", ""),
        headers=headers,
        count=int(facts.get("ApproximateReceiveCount", 1)),
        sent=int(facts.get("SentTimestamp", 0)) / 1000,
        key=facts.get("MessageGroupId"),
    )


def _text(attribute: Json) -> str:
    text: str | None = attribute.get("StringValue")
    raw: bytes = attribute.get("BinaryValue") or b""
    return raw.decode("utf-8", "replace") if text is None else text


def _unpack(text: str) -> dict[str, str] | None:
    """The headers in one attribute; None where they are no JSON object."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return {name: as_text(value) for name, value in cast("Json", found).items()}


def _reference(text: str | None) -> tuple[str, str] | None:
    """Path and hash in a claim check; None where it is none."""
    facts = json_object(text)
    path, digest = facts.get("path"), facts.get("sha256")
    return (path, digest) if isinstance(path, str) and isinstance(digest, str) else None


def _decode(text: str, how: str | None) -> tuple[bytes, bool]:
    """The body, and whether it is what its encoding says; else it is as it came."""
    if how == "empty":
        return b"", True
    if how == "base64":
        try:
            return base64.b64decode(text, validate=True), True
        except ValueError:
            return _utf8(text), False
    return _utf8(text), how is None
