"""The settings of the Kafka clients."""

from __future__ import annotations

from typing import Any, Final

from lexigram.queue.config import KafkaDriverConfig

DEFAULT_SERVERS: Final = "localhost:9092"
FETCH_WAIT: Final = 100  # milliseconds a broker without new records delays its answer


def client_settings(config: KafkaDriverConfig) -> dict[str, Any]:
    """The settings of every client. Its own log would repeat the errors raised here."""
    return {
        "bootstrap.servers": config.bootstrap_servers or DEFAULT_SERVERS,
        "client.id": config.client_id,
        "log_level": 2,
        "reconnect.backoff.max.ms": 2000,
        "socket.timeout.ms": int(config.timeout * 1000),
        "topic.metadata.refresh.interval.ms": 30_000,
        **config.properties,
    }


def reader_settings(config: KafkaDriverConfig) -> dict[str, Any]:
    """For a client that reads without a group."""
    return client_settings(config) | {
        "group.id": f"{config.group_id}.readers",  # never joined
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": FETCH_WAIT // 2,
    }
