"""Members for groups, and the way to topics for retries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from lexigram import clock
from lexigram.contracts.queue import BusMessage
from lexigram.queue.backends.kafka._connection import Connection
from lexigram.queue.backends.kafka._control import Declared
from lexigram.queue.backends.kafka._member import BEATS, Member
from lexigram.queue.backends.kafka._names import GroupTopics
from lexigram.queue.backends.kafka._partition import Record
from lexigram.queue.backends.kafka._poller import Membership
from lexigram.queue.backends.kafka._settings import FETCH_WAIT, client_settings
from lexigram.queue.backends.kafka._wire import NOT_BEFORE, PREFIX, OutboundRecord
from lexigram.queue.runtime.envelope import delay_of, to_headers

# Milliseconds. A member learns of a rebalance by a heartbeat, and until all members have joined
# again the group takes no commits of those who have.
LONGEST_BEAT: Final = 500
SHORTEST_BEAT: Final = 100


@frozen(eq=False)
class Receipt:
    member: Member
    record: Record

    @property
    def is_valid(self) -> bool:
        return self.member.holds(self.record)


async def find_member(there: Connection, place: GroupTopics, declared: Declared) -> Member:
    member = there.members.get((place.topic, place.group))
    if member is not None and not member.is_stopping:
        return member
    await there.ensure_place(place)
    config = there.config
    return there.join(
        place.topic,
        place.group,
        Membership(
            group_id=place.group_id,
            main=place.main,
            retries=place.retries,
            partitions={name: there.partitions[name] for name in place.retries},
            marks=declared.marks,
            topic=place.topic,
            settings=client_settings(config)
            | {
                "group.id": place.group_id,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "partition.assignment.strategy": "cooperative-sticky",
                "auto.offset.reset": config.auto_offset_reset,
                "session.timeout.ms": int(config.session_timeout * 1000),
                "heartbeat.interval.ms": heartbeat_of(config.session_timeout),
                "max.poll.interval.ms": int(
                    (config.rebalance_timeout + config.session_timeout) * 1000
                )
                + 300_000,
                "fetch.wait.max.ms": FETCH_WAIT,
                "queued.max.messages.kbytes": 16_384,
            },
            timeout=config.timeout,
            session=config.session_timeout,
            drain=config.rebalance_timeout,
        ),
    )


async def move_early(
    there: Connection, place: GroupTopics, member: Member, early: Sequence[Record]
) -> None:
    """Messages before their time wait in a topic for retries; written first, then settled."""
    moved = False
    now = clock.timestamp()
    try:
        records: list[OutboundRecord] = []
        for one in list(early):
            delay = max(delay_of(one.message, now), one.not_before - now)
            record = make_retry(there, place, one.message, delay)
            if record.size > there.config.max_message_bytes:  # as in nack
                member.put_back(one, one.message, delay)
            else:
                records.append(record)
        await there.send(records)
        moved = True
    finally:
        for one in early:
            if not member.holds(one):
                continue
            if moved:
                member.settle(one)
            else:
                member.put_back(one, one.message, 0.1)  # looked at again
    await member.commit(early)


def make_retry(
    there: Connection, place: GroupTopics, message: BusMessage, delay: float
) -> OutboundRecord:
    """For the topic of the shortest delay that is long enough, else the longest."""
    name = next(
        (name for name, length in place.retries.items() if delay <= length),
        place.longest,
    )
    headers = to_headers(message, prefix=PREFIX)
    headers[NOT_BEFORE] = repr(clock.timestamp() + max(0.0, delay))
    # Who has a partition of the topic reads that of the same number here, and no other.
    readable = min(there.partitions[name], there.partitions[place.main])
    chosen = there.choose(name, readable)
    there.count_choice(name)
    return OutboundRecord(name, message.payload, headers, None, chosen)


def heartbeat_of(session: float) -> int:
    """Milliseconds between heartbeats of a member."""
    return max(SHORTEST_BEAT, min(LONGEST_BEAT, int(session * 1000 / BEATS)))
