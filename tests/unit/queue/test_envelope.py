"""A whole message travels as headers and a bare body; strangers are understood."""

import string
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram import clock
from lexigram.contracts.queue import (
    BusMessage,
    DeadLetterEntry,
    DeadLetterReason,
    DeliveryGuarantee,
)
from lexigram.contracts.queue.headers import UNREADABLE
from lexigram.queue.runtime import envelope

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
IDS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=20)
NAMES = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=10).filter(
    lambda name: not name.lower().startswith(("ce-", "ce_", "dead-"))
)
MESSAGES = st.builds(
    BusMessage,
    id=IDS,
    topic=IDS,
    payload=st.binary(max_size=50),
    headers=st.dictionaries(NAMES, TEXT, max_size=4),
    timestamp=st.floats(0, 4e9),
    ttl=st.none() | st.floats(0, 1e9),
    priority=st.integers(-9, 9),
    delivery_guarantee=st.sampled_from(DeliveryGuarantee),
    retry_count=st.integers(0, 50),
    max_retries=st.integers(0, 50),
)
PREFIXES = st.sampled_from(["ce-", "ce_"])


@given(MESSAGES, PREFIXES)
def test_every_message_survives_as_text_headers(message, prefix):
    native = envelope.to_headers(message, prefix=prefix)
    assert all(isinstance(part, str) for pair in native.items() for part in pair)
    back = envelope.from_headers(
        native, message.payload, topic="elsewhere", fallback_id="broker-1", prefix=prefix
    )
    assert back == message


@given(MESSAGES)
def test_headers_may_come_as_bytes(message):
    native = {k.encode(): v.encode() for k, v in envelope.to_headers(message).items()}
    back = envelope.from_headers(native, message.payload, topic="x", fallback_id="y")
    assert back == message


@given(MESSAGES, TEXT, TEXT)
def test_a_dead_letter_survives(message, error, trace):
    entry = DeadLetterEntry(
        message=message,
        error=error,
        failed_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        retry_count=message.retry_count,
        reason=DeadLetterReason.POISON,
        traceback=trace or None,
        attempts=4,
        group="g",
    )
    native = envelope.dead_headers(entry)
    back = envelope.from_dead_headers(native, message.payload, topic="x", fallback_id="y")
    assert back == entry


def test_a_message_of_a_foreign_producer_is_a_message():
    got = envelope.from_headers(None, b"body", topic="orders", fallback_id="1-0")
    assert (got.id, got.topic, got.payload, got.headers) == ("1-0", "orders", b"body", {})
    assert (got.ttl, got.priority, got.retry_count, got.max_retries) == (None, 0, 0, 3)


def test_a_cloud_event_of_others_keeps_its_type_and_source():
    native = {
        "ce-specversion": "1.0",
        "ce-id": "A-1",
        "ce-source": "/billing",
        "ce-type": "com.example.paid",
        "ce-time": "2026-01-02T03:04:05Z",
        "content-type": "application/json",
    }
    got = envelope.from_headers(native, b"{}", topic="orders", fallback_id="x")
    assert got.id == "A-1"
    assert got.timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
    assert got.headers == {
        "ce-source": "/billing",
        "ce-type": "com.example.paid",
        "content-type": "application/json",
    }
    again = envelope.to_headers(got)
    assert (again["ce-source"], again["ce-type"]) == ("/billing", "com.example.paid")


def test_foreign_consumers_read_the_standard_names():
    native = envelope.to_headers(BusMessage(id="1", topic="orders", timestamp=0.5))
    assert native["ce-specversion"] == "1.0"
    assert (native["ce-id"], native["ce-type"], native["ce-source"]) == ("1", "orders", "/lexigram")
    assert native["ce-time"] == "1970-01-01T00:00:00.500000+00:00"


@pytest.mark.parametrize(
    "value", ["abc", "nan", "inf", "1e300", "9" * 5000, b"\xff", 2**80, {}, []]
)
@pytest.mark.parametrize(
    "name",
    [
        "ce-lexttl",
        "ce-lexpriority",
        "ce-lexretries",
        "ce-lexmaxretries",
        "ce-lexguarantee",
        "ce-lextimestamp",
        "ce-time",
    ],
)
def test_a_header_that_cannot_be_read_is_named_and_its_field_has_the_default(time, name, value):
    got = envelope.from_headers({name: value}, b"", topic="t", fallback_id="1")
    assert (got.ttl, got.priority, got.retry_count, got.max_retries) == (None, 0, 0, 3)
    assert got.delivery_guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    assert got.timestamp == clock.timestamp()
    assert got.headers[UNREADABLE].startswith(f"{name} ")


@pytest.mark.parametrize("value", ["-1", "1.5", str(2**31), str(2**63)])
@pytest.mark.parametrize("name", ["ce-lexretries", "ce-lexmaxretries"])
def test_a_count_is_a_whole_number_of_31_bits(name, value):
    got = envelope.from_headers({name: value}, b"", topic="t", fallback_id="1")
    assert (got.retry_count, got.max_retries) == (0, 3)
    assert name in got.headers[UNREADABLE]


@pytest.mark.parametrize("text", ["a\0b", "a\nb", "x" * 10_000])
def test_an_id_and_a_topic_that_could_not_be_published_are_not_taken_over(text):
    native = {"ce-id": text, "ce-lextopic": text}
    got = envelope.from_headers(native, b"", topic="t", fallback_id="1")
    assert (got.id, got.topic) == ("1", "t")
    assert "ce-id" in got.headers[UNREADABLE]
    assert "ce-lextopic" in got.headers[UNREADABLE]


def test_what_cannot_be_read_survives_a_retry_and_is_tried_again_after_a_redrive():
    native = {"ce-id": "A-1", "ce-lexttl": "soon", "tenant": "7"}
    got = envelope.from_headers(native, b"", topic="t", fallback_id="x")
    again = envelope.from_headers(envelope.to_headers(got), b"", topic="t", fallback_id="x")
    assert again == got
    back = envelope.redriven(again)
    assert UNREADABLE not in back.headers
    after = envelope.from_headers(envelope.to_headers(back), b"", topic="t", fallback_id="x")
    assert (
        after.headers
        == got.headers
        == {
            "ce-lexttl": "soon",
            "tenant": "7",
            UNREADABLE: "ce-lexttl 'soon'",
        }
    )


@pytest.mark.parametrize(
    "native",
    [
        {str(number): "x" * 100 for number in range(1000)},
        {str(number): "" for number in range(1001)},
        {"note": "€" * 22_000},  # in characters it would fit
    ],
)
def test_headers_beyond_all_measure_are_dropped_but_for_those_that_tell_how_to_read_it(native):
    native |= {"content-type": "text/plain", "ordering-key": "k" * 60_000}
    got = envelope.from_headers(native, b"", topic="t", fallback_id="1")
    assert set(got.headers) == {"content-type", "ordering-key", UNREADABLE}
    assert "headers of" in got.headers[UNREADABLE]
    assert len(got.headers["ordering-key"]) == 1_000  # else a dead letter would have no room either


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [None, b"\xff\xfe", "\ud800", 10**5000, nested(50_000), object(), memoryview(b"x")],
    ids=["none", "bytes", "surrogate", "long", "nested", "object", "view"],
)
def test_a_header_of_any_kind_becomes_text_that_can_be_written_again(value):
    got = envelope.from_headers({"x": value}, b"", topic="t", fallback_id="1")
    assert got.headers["x"].encode() is not None
    entry = envelope.from_dead_headers(
        {"dead-at": value, "x": value}, b"", topic="t", fallback_id="1"
    )
    assert entry.message.headers["x"].encode() is not None
    assert UNREADABLE not in got.headers


@pytest.mark.parametrize("value", ["inf", "nan", "1e300", "-1", "x", "9" * 5000])
def test_the_facts_of_a_dead_letter_that_cannot_be_read_have_their_defaults(time, value):
    native = dict.fromkeys(["dead-at", "dead-retries", "dead-attempts", "dead-reason"], value)
    entry = envelope.from_dead_headers(native, b"", topic="t", fallback_id="1")
    assert (entry.retry_count, entry.attempts) == (0, 0)
    assert entry.reason is DeadLetterReason.REJECTED
    assert entry.failed_at.timestamp() == clock.timestamp()


@pytest.mark.parametrize("value", ["inf", "nan", "1e300", "-5", "soon", ""])
def test_a_time_that_cannot_be_read_delays_nothing(value):
    assert envelope.delay_of(BusMessage(headers={"deliver-at": value})) == 0.0
    assert envelope.due_of(BusMessage(headers={"deliver-at": value})) == 0.0


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_text_is_one_line_of_ascii_and_comes_back(text):
    escaped = envelope.escape(text)
    assert escaped.isascii()
    assert escaped.isprintable()
    assert envelope.unescape(escaped) == text


def test_long_errors_are_cut_to_what_brokers_take():
    entry = DeadLetterEntry(message=BusMessage(), error="e" * 10_000, traceback="t" * 100_000)
    native = envelope.dead_headers(entry)
    assert len(native["dead-error"]) == envelope.ERROR_CHARACTERS
    assert len(native["dead-traceback"]) == envelope.TRACEBACK_CHARACTERS
