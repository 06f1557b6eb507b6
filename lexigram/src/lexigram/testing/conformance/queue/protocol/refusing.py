"""What no broker can be given is refused when it is published, whatever the broker."""

from __future__ import annotations

from typing import Any

import pytest

from lexigram.contracts.queue import BusMessage, InvalidMessageError, QueueProtocol
from lexigram.contracts.queue.headers import DELIVER_AT
from lexigram.contracts.queue.limits import (
    MAX_HEADER_NAME_BYTES,
    MAX_HEADERS,
    MAX_HEADERS_BYTES,
    MAX_ID_BYTES,
    MAX_NAME_BYTES,
    MAX_PRIORITY,
    MAX_RETRIES,
    MAX_SECONDS,
)
from lexigram.testing.conformance.queue.protocol.spec import (
    Collector,
    QueueCapability,
    QueueSpec,
    until,
)

_NOT_FINITE = (float("inf"), float("-inf"), float("nan"), 1e300, -1.0)
TOPICS = ["", "*", ">", "orders.*", "orders.>", "a\0b", "a\nb", "a\ud800", "é" * 128, "x" * 256]
FIELDS: list[tuple[str, dict[str, Any]]] = [
    *(("id", {"id": text}) for text in ("", "a\0", "a\n", "\udfff", "x" * (MAX_ID_BYTES + 1), 7)),
    *(("priority", {"priority": one}) for one in (1000, MAX_PRIORITY + 1, -1, 2**63, 1.5, True)),
    *(("retry_count", {"retry_count": one}) for one in (99, -1, 4, 2**63, 0.5)),
    *(("max_retries", {"max_retries": one}) for one in (-1, MAX_RETRIES + 1, 2**63, None)),
    *(("ttl", {"ttl": one}) for one in (*_NOT_FINITE, MAX_SECONDS + 1, "5")),
    *(("timestamp", {"timestamp": one}) for one in (*_NOT_FINITE, 1_700_000_000_000, None)),
    ("delivery_guarantee", {"delivery_guarantee": "at_least_once"}),
    *(("header name", {"headers": {name: "x"}}) for name in ("", "a\0", "a\r\nb", "\ud800", 7)),
    ("header name", {"headers": {"x" * (MAX_HEADER_NAME_BYTES + 1): "x"}}),
    *(("header a", {"headers": {"a": text}}) for text in ("\0", "a\r\nb", "\ud800", 7, b"x", None)),
    ("header a", {"headers": {"a": "x" * (MAX_HEADERS_BYTES + 1)}}),
    ("headers", {"headers": {str(number): "x" * 100 for number in range(400)}}),
    ("headers", {"headers": {str(number): "" for number in range(MAX_HEADERS + 1)}}),
    *(
        (DELIVER_AT, {"headers": {DELIVER_AT: text}})
        for text in ("soon", "", "inf", "nan", "1e300")
    ),
    *((key, {"headers": {key: ""}}) for key in ("ordering-key", "fairness-key")),
    ("ordering-key", {"headers": {"ordering-key": "x" * (MAX_NAME_BYTES + 1)}}),
]


class RefusingSpec(QueueSpec, capability=QueueCapability.REFUSAL):
    """The bounds of ``lexigram.contracts.queue.limits``."""

    @pytest.mark.parametrize("topic", TOPICS, ids=lambda text: ascii(text)[:20])
    async def test_a_topic_that_no_broker_can_be_given_is_refused(
        self, subject: QueueProtocol, topic: str
    ) -> None:
        with pytest.raises(InvalidMessageError, match=r"^\[LEX_ERR_QUEUE_111\] topic ") as caught:
            await subject.publish(topic, BusMessage(payload=1))
        assert caught.value.details["field"] == "topic"

    async def test_a_field_out_of_bounds_is_refused_by_name_and_nothing_is_sent(
        self, subject: QueueProtocol, topic: str
    ) -> None:
        collect = Collector()
        await subject.subscribe(topic, collect)
        for field, wrong in FIELDS:
            with pytest.raises(InvalidMessageError) as caught:
                await subject.publish(topic, BusMessage(payload="wrong", **wrong))
            assert caught.value.details["field"] == field, wrong
            assert caught.value.message.startswith(field)
            assert caught.value.topic == topic
        await subject.publish(topic, BusMessage(payload="last"))
        await until(lambda: bool(collect.payloads))
        assert collect.payloads == ["last"]

    async def test_what_is_just_within_bounds_is_handled(
        self, subject: QueueProtocol, topic: str
    ) -> None:
        long = f"{topic}.{'x' * (MAX_NAME_BYTES - len(topic) - 1)}"
        collect = Collector()
        await subject.subscribe(long, collect)
        largest = {"x" * MAX_HEADER_NAME_BYTES: "y" * (MAX_HEADERS_BYTES - MAX_HEADER_NAME_BYTES)}
        sent = BusMessage(
            id="i" * MAX_ID_BYTES,
            payload=1,
            headers=largest,
            ttl=float(MAX_SECONDS),
            retry_count=7,
            max_retries=MAX_RETRIES,
        )
        await subject.publish(long, sent)
        await until(lambda: len(collect.messages) == 1)
        (got,) = collect.messages
        assert (got.id, got.topic, got.max_retries) == (sent.id, long, MAX_RETRIES)
        assert largest.items() <= got.headers.items()
