"""Headers are data: whatever others wrote there, a message comes, can be settled and set aside."""

from __future__ import annotations

from dataclasses import replace

import anyio

from lexigram.contracts.queue import Capability, DeadLetterEntry, DeadLetterReason, Delivery
from lexigram.contracts.queue.headers import (
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVER_AT,
    FAIRNESS_KEY,
    ORDERING_KEY,
)
from lexigram.testing.conformance.queue.driver.spec import (
    HANG_GUARD_SECONDS,
    Driver,
    DriverSpec,
    message,
)

NO_NUMBERS = (
    "soon",
    "",
    "inf",
    "-inf",
    "nan",
    "1e300",
    "-1e300",
    "9" * 400,
    "0x10",
    "1,5",
    "١٢٣ x",
)
PARTS = ("time", "lextimestamp", "lexttl", "lexpriority", "lexretries", "lexmaxretries")
# Invalid values under our own header names, in both spellings of CloudEvents.
HEADERS: list[dict[str, str]] = [
    *({DELIVER_AT: text} for text in NO_NUMBERS),
    *({f"{ce}{part}": text for part in PARTS for ce in ("ce-", "ce_")} for text in NO_NUMBERS),
    {"ce-lexguarantee": "always", "ce_lexguarantee": "always"},
    {CONTENT_TYPE: "text/plain; charset=klingon", CORRELATION_ID: "\N{SNOWMAN}" * 100},
    {ORDERING_KEY: "", FAIRNESS_KEY: ""},
    {"name with spaces": " value\twith\ttabs ", "x" * 100: "\N{SNOWMAN}" * 100},
]


class ForeignSpec(DriverSpec, capability=Capability.RECEIVE):
    """Headers that make no sense, of producers other than Lexigram."""

    async def test_a_message_with_senseless_headers_comes_and_can_be_retried_and_set_aside(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        sent = [
            message(topic, b"%d" % number, headers=headers)
            for number, headers in enumerate(HEADERS)
        ]
        with anyio.fail_after(HANG_GUARD_SECONDS):
            await subject.publish_many(sent)
            while await subject.count_dead(topic, "g") < len(sent):
                for held in await subject.receive(topic, "g", limit=len(sent), wait=0.5):
                    await self._fail(subject, held)  # one whose lease ran out comes once more
            listed = await subject.list_dead(topic, "g", limit=len(sent))
            assert sorted(entry.message.payload for entry in listed) == sorted(
                one.payload for one in sent
            )
            assert await subject.redrive(topic, "g") == len(sent)
            missing = {one.payload for one in sent}
            while missing:
                got = await subject.receive(topic, "g", limit=len(sent), wait=0.5)
                missing -= {held.message.payload for held in got}
                await subject.ack_many(got)

    async def _fail(self, subject: Driver, held: Delivery) -> None:
        """Retry it the first time, set it aside the second time."""
        if held.message.retry_count == 0:
            await subject.nack(held, message=replace(held.message, retry_count=1))
            return
        reason = DeadLetterReason.UNDECODABLE
        entry = DeadLetterEntry(held.message, "cannot be read", reason=reason, group="g")
        await subject.dead_letter(held, entry)
