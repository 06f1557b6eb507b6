"""A partition as its member has it: what is in flight, settled, reserved and written."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import define, field, frozen

from lexigram.contracts.queue import BusMessage
from lexigram.queue.backends.kafka._wire import library

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition


# Offsets from the first unsettled record of a partition to the last one read. What is settled in
# between is part of the commit, one bit each: 4096 bytes of metadata hold 24,000 of them.
WINDOW: Final = 16_000
MARK: Final = "lex2:"  # begins the metadata of a commit that is ours
# Records that may be handed out before a commit has to say so: after a crash the next owner of the
# partition handles as many of them alone. Commits of settled records renew it on their way.
RESERVE: Final = 500
MAX_BEGUN: Final = 64  # records whose begins are counted in one commit: their bytes are bounded
_MAX_DIGITS: Final = 9

Place: TypeAlias = tuple[str, int]  # topic and partition, as Kafka names them


@define(eq=False)
class Record:
    """One record in flight; it is the receipt of its delivery."""

    part: Part
    offset: int
    message: BusMessage
    key: bytes | None
    rank: tuple[float, int]  # in which order records are handed out
    due: float = 0.0  # by the wall clock
    not_before: float = 0.0
    ticket: int | None = None  # of its settlement, until that is known to be written or not


@define(eq=False)
class Part:
    """One partition as long as this member has it."""

    place: Place
    delay: float | None  # of a topic for retries; None: the topic itself
    # The first offset that is not settled; None until the first record came.
    base: int | None
    done: set[int]  # settled, above the base
    known: int | None = None  # the base that Kafka has
    next: int = -1  # the offset after the last one that came
    order: deque[int] = field(factory=deque[int])  # what came and lies at or above the base
    waiting: int = 0  # records held here and not handed out
    in_flight: dict[int, Record] = field(factory=dict[int, Record])
    # A key that is here has a record in flight or ready; those behind it wait.
    keys: dict[bytes, deque[Record]] = field(factory=dict[bytes, "deque[Record]"])
    delayed: list[tuple[float, int, Record]] = field(factory=list[tuple[float, int, Record]])
    # A record is handed out only after a commit has reserved it: the metadata that Kafka has say
    # that all before this offset may have been begun.
    reserved: int = 0
    handed: int = 0  # the offset after the last one that was handed out
    suspect_until: int = 0  # those before it were reserved by an owner that went without a word
    begun: dict[int, int] = field(factory=dict[int, int])  # how often handlers of these were begun
    is_dirty: bool = False  # settled and not committed
    settled: int = 0  # so many settlements there were
    written: int = 0  # the last of them that a commit has written
    is_paused: bool = False
    is_closing: bool = False  # it goes to another member: nothing more is handed out
    is_gone: bool = False

    def came(self, offset: int) -> bool:
        """Note an offset; False for one that was settled before."""
        if self.base is None:
            self.base = offset
        self.next = max(self.next, offset + 1)
        if offset < self.base:
            return False
        self.order.append(offset)
        if offset in self.done:
            self._advance()
            return False
        return True

    def settle(self, offset: int) -> int:
        """Offsets without a record (compaction, transactions) do not hold the base back."""
        self.done.add(offset)
        self.begun.pop(offset, None)
        self.is_dirty = True
        self.settled += 1
        self._advance()
        return self.settled

    def recall(self, old: Part) -> None:
        """What was settled when this member had it before, and never written."""
        if old.base is None:
            return
        if self.base is None and old.known is None:
            self.base = old.base  # still nothing is committed: all before it was settled here
        if self.base is None or self.base < (old.known or 0):
            return  # an operator has set the group back
        settled = {one for one in old.done if one >= self.base}
        settled.update(range(self.base, old.base))
        self.done |= settled
        while self.base in self.done:
            self.done.discard(self.base)
            self.base += 1
        self.next = self.base
        self.is_dirty = self.known != self.base or bool(settled)

    def _advance(self) -> None:
        order, done = self.order, self.done
        while order and order[0] in done:
            done.discard(order.popleft())
        base = order[0] if order else self.next
        if self.base is None or base > self.base:
            self.base = base
            self.is_dirty = True

    @property
    def reserves(self) -> int:
        """What the next commit reserves; once it is closing, no more than what is in flight."""
        base = self.base or 0
        if self.is_closing:
            return max(base, self.suspect_until, *(one + 1 for one in self.in_flight))
        if not self.handed:
            return max(base, self.suspect_until)
        return max(base, self.handed, self.suspect_until) + RESERVE

    def close(self) -> None:
        """Hand out nothing more; the last commit takes back what was reserved and not used."""
        self.is_closing = True
        if self.reserved > self.reserves:
            self.is_dirty = True

    @property
    def is_written(self) -> bool:
        """True when Kafka knows all that is settled."""
        return not self.is_dirty and self.written == self.settled

    @property
    def span(self) -> int:
        """How far reading is ahead of settling."""
        return 0 if self.base is None else self.next - self.base


@frozen
class CommitNote:
    """What the metadata of a commit say of the records from its offset on."""

    done: set[int] = field(factory=set[int])  # settled, above the base
    reserved: int = 0  # all before it may have been begun; 0 where none was
    begun: dict[int, int] = field(factory=dict[int, int])  # of those that came back: how often


def pack(
    base: int, done: Iterable[int], reserved: int = 0, begun: Mapping[int, int] | None = None
) -> str:
    """What is settled and begun above the base, as the metadata of a commit."""
    bits = 0
    for offset in done:
        if offset > base:
            bits |= 1 << (offset - base)
    ahead = max(0, reserved - base)
    counts = [f"{offset - base}={number}" for offset, number in sorted((begun or {}).items())]
    if not (bits or ahead or counts):
        return ""
    raw = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    packed = base64.b64encode(zlib.compress(raw)).decode() if bits else ""
    return f"{MARK}{ahead};{','.join(counts[:MAX_BEGUN])};{packed}"


def unpack(base: int, metadata: str | None) -> CommitNote:
    """The inverse of ``pack``; metadata of others mean nothing."""
    if not metadata or not metadata.startswith(MARK):
        return CommitNote()
    parts = metadata.removeprefix(MARK).split(";")
    if len(parts) != 3 or (ahead := _read_number(parts[0])) is None:
        return CommitNote()
    try:
        packed = base64.b64decode(parts[2], validate=True)
        # Bounded: a few bytes of others may stand for gigabytes.
        raw = zlib.decompressobj().decompress(packed, WINDOW) if packed else b""
    except (ValueError, binascii.Error, zlib.error):
        return CommitNote()
    done = {
        base + 8 * place + bit
        for place, byte in enumerate(raw)
        if byte
        for bit in range(8)
        if byte >> bit & 1
    }
    begun: dict[int, int] = {}
    for entry in filter(None, parts[1].split(",")):
        offset, _, number = map(_read_number, entry.partition("="))
        if offset is not None and number:
            begun[base + offset] = number
    return CommitNote(done, base + ahead if ahead else 0, begun)


def _read_number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    return int(text) if is_number else None


def commit_of(part: Part) -> TopicPartition:
    base = part.base or 0
    metadata = pack(base, part.done, part.reserves, part.begun)
    made: TopicPartition = library().TopicPartition(*part.place, base, metadata)
    return made
