"""What Kafka refuses: which errors pass by themselves, and what to do about the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lexigram.queue.backends.kafka._names import legal_name
from lexigram.queue.backends.kafka._partition import Place
from lexigram.queue.backends.kafka._wire import library

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class MovedError(Exception):
    """Partitions went to another member before it was written that their records are settled."""

    def __init__(self, places: Iterable[Place]) -> None:
        super().__init__(*sorted(set(places)))

    def __str__(self) -> str:
        names = ", ".join(f"{topic} [{number}]" for topic, number in self.args)
        return f"{names} went to another member before the commit was written"


def passes(error: KafkaError) -> bool:
    """True when a commit may succeed a moment later."""
    return error.code() in rebalancing() | temporary()


def rebalancing() -> frozenset[int]:
    """The codes with which a commit fails while the group is rebalanced."""
    errors = library().KafkaError
    return frozenset(
        {errors.REBALANCE_IN_PROGRESS, errors.ILLEGAL_GENERATION, errors.UNKNOWN_MEMBER_ID}
    )


def temporary() -> frozenset[int]:
    """What passes by itself, while a group moves to another broker or one is slow."""
    errors = library().KafkaError
    return frozenset(
        {
            errors.COORDINATOR_LOAD_IN_PROGRESS,
            errors.COORDINATOR_NOT_AVAILABLE,
            errors.NOT_COORDINATOR,
            errors.REQUEST_TIMED_OUT,
            errors.UNSTABLE_OFFSET_COMMIT,
            errors._TIMED_OUT,  # noqa: SLF001 - its name
            errors._TRANSPORT,  # noqa: SLF001 - its name
            errors._WAIT_COORD,  # noqa: SLF001 - its name
        }
    )


def explain(error: BaseException, topic: str) -> tuple[str, str]:
    """The text of an error, and what to do about it."""
    reach = "check that the brokers run and that bootstrap_servers names them"
    if isinstance(error, MovedError):
        return str(error), "nothing to do: what was not written is delivered again"
    if not isinstance(error, library().KafkaException):
        text = str(error) or "no answer in time"
        if isinstance(error, BufferError):
            return (
                text,
                "the brokers take messages more slowly than they come: publish fewer at once",
            )
        return text, reach
    cause: KafkaError = error.args[0]
    return f"{cause.str()} ({cause.name()})", _hints(legal_name(topic)).get(cause.name(), reach)


def _hints(topic: str) -> dict[str, str]:
    """By the name of the error in librdkafka."""
    sign_in = "check sasl.username and sasl.password in kafka.properties"
    create = f"create topic {topic}, or allow the user to"
    return {
        "_AUTHENTICATION": sign_in,
        "SASL_AUTHENTICATION_FAILED": sign_in,
        "_SSL": "check security.protocol and ssl.ca.location in kafka.properties",
        "_INVALID_ARG": "check kafka.properties: these are settings of librdkafka",
        "TOPIC_AUTHORIZATION_FAILED": f"allow Read, Write, Describe and Create on topic {topic} "
        "and on those whose names begin with it",
        "CLUSTER_AUTHORIZATION_FAILED": "allow Create and IdempotentWrite on the cluster, or "
        "create the topics beforehand",
        "GROUP_AUTHORIZATION_FAILED": "allow Read on groups that begin with kafka.group_id",
        "UNKNOWN_TOPIC_OR_PART": create,
        "_UNKNOWN_TOPIC": create,
        "INVALID_REPLICATION_FACTOR": "set kafka.replicas to at most the number of brokers",
        "POLICY_VIOLATION": "create the topics beforehand: a policy of the cluster refuses it",
        "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic to kafka.max_message_bytes",
        "THROTTLING_QUOTA_EXCEEDED": "raise the quota of this client; it is tried again later",
        "NOT_ENOUGH_REPLICAS": "bring back brokers: fewer than min.insync.replicas run",
    }
