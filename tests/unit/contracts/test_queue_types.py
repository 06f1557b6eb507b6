import dataclasses
import time
import uuid
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.contracts.queue import (
    BusMessage,
    DeadLetterEntry,
    DeadLetterReason,
    DeliveryGuarantee,
)


def test_a_message_without_ttl_never_expires():
    assert not BusMessage(timestamp=0.0).is_expired()


def test_a_message_expires_when_its_ttl_is_over():
    assert BusMessage(timestamp=time.time() - 10, ttl=5).is_expired()
    assert not BusMessage(ttl=60).is_expired()
    assert BusMessage(timestamp=time.time() - 1, ttl=0).is_expired()


def test_max_retries_counts_retries_after_the_first_attempt():
    message = BusMessage(max_retries=2)
    tries = 1
    while message.should_retry():
        message = dataclasses.replace(message, retry_count=message.retry_count + 1)
        tries += 1
    assert tries == 3


def test_an_expired_message_is_not_retried():
    assert not BusMessage(timestamp=time.time() - 10, ttl=5).should_retry()


@given(st.integers(0, 9), st.integers(0, 9), st.none() | st.sampled_from([-60.0, 60.0]))
def test_should_retry_is_retries_left_and_not_expired(count, limit, ttl):
    message = BusMessage(retry_count=count, max_retries=limit, ttl=ttl)
    assert message.should_retry() is (count < limit and ttl != -60.0)


def test_the_fields_are_those_users_know_in_their_order():
    before = time.time()
    message = BusMessage("id-1", "orders", {"n": 1})
    assert (message.id, message.topic, message.payload) == ("id-1", "orders", {"n": 1})
    assert before <= message.timestamp <= time.time()
    assert dataclasses.astuple(message)[3:4] == ({},)
    assert dataclasses.astuple(message)[5:] == (
        None,
        0,
        DeliveryGuarantee.AT_LEAST_ONCE,
        0,
        3,
    )


def test_every_message_gets_its_own_id_and_headers():
    first, second = BusMessage(), BusMessage()
    assert uuid.UUID(first.id).version == 4
    assert first.id != second.id
    assert first.headers is not second.headers


def test_a_message_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        BusMessage().topic = "other"


def test_a_dead_letter_knows_when_and_why():
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    entry = DeadLetterEntry(BusMessage(), "boom", moment, 3)
    assert entry.timestamp == entry.failed_at == moment
    assert entry.reason is DeadLetterReason.RETRIES_EXHAUSTED
    assert DeadLetterEntry(BusMessage(), "boom").failed_at.tzinfo is UTC
