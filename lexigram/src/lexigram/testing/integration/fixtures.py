"""Fixtures for tests against a broker; import them into a conftest to use them.

Kafka is the mock cluster that the client library brings: real brokers of Kafka's protocol on
loopback, without a JVM, for as long as the test runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

START_SECONDS = 10.0  # the mock answers in milliseconds


@pytest.fixture
def kafka_servers() -> Iterator[str]:
    """The bootstrap servers of a mock cluster that is gone after the test."""
    library = pytest.importorskip("confluent_kafka", reason='pip install "lexigram-queue[kafka]"')
    cluster = library.Producer(
        {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 2}
    )
    brokers = cluster.list_topics(timeout=START_SECONDS).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    cluster.flush(0)


@pytest.fixture
def kafka_producer(kafka_servers: str) -> Iterator[Any]:
    """A ``confluent_kafka.Producer`` on the mock cluster, such as a foreign program has."""
    library = pytest.importorskip("confluent_kafka")
    producer = library.Producer({"bootstrap.servers": kafka_servers, "log_level": 2})
    yield producer
    producer.flush(START_SECONDS)
