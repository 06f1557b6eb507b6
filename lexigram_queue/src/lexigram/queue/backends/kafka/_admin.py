"""Questions to the brokers that wait for their answer: each blocks, for a thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from lexigram.queue.backends.kafka._names import control_topic
from lexigram.queue.backends.kafka._partition import Place
from lexigram.queue.backends.kafka._wire import library
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.config import KafkaDriverConfig


def make_topics(
    admin: Any, names: Sequence[str], config: KafkaDriverConfig, partitions: int | None = None
) -> dict[str, int]:
    """Make topics that do not exist; how many partitions each has.

    Clusters that make topics by themselves are asked for them.
    """
    cluster = admin.list_topics(timeout=config.timeout)
    missing = [name for name in names if name not in cluster.topics]
    if missing and cluster.controller_id in cluster.brokers:
        new = [_new_topic(name, partitions or config.partitions, config) for name in missing]
        for made in admin.create_topics(new, request_timeout=config.timeout).values():
            try:
                made.result(config.timeout)
            except library().KafkaException as error:
                errors = library().KafkaError
                # Another process was faster, or the brokers cannot be asked.
                if error.args[0].code() not in (
                    errors.TOPIC_ALREADY_EXISTS,
                    errors._UNSUPPORTED_FEATURE,  # noqa: SLF001 - its name
                ):
                    raise
    return {name: _count_partitions(admin, name, config.timeout) for name in names}


def _new_topic(name: str, partitions: int, config: KafkaDriverConfig) -> Any:
    module = require_library("confluent_kafka.admin", extra="kafka")
    compacted = name == control_topic(config.group_id) or name.endswith(".dlq")
    return module.NewTopic(
        name,
        num_partitions=1 if compacted else partitions,
        replication_factor=-1 if config.replicas is None else config.replicas,
        config={"cleanup.policy": "compact"} if compacted else {},
    )


def _count_partitions(admin: Any, name: str, timeout: float) -> int:
    error: Any = None
    for _ in range(50):  # a new topic is known to all brokers a moment later
        found = admin.list_topics(name, timeout=timeout).topics.get(name)
        error = None if found is None else found.error
        if found is not None and error is None and found.partitions:
            return len(found.partitions)
        time.sleep(0.1)
    if error is not None:
        raise library().KafkaException(error)
    raise TimeoutError(f"topic {name} does not appear")


def list_offsets(
    admin: Any, places: Sequence[Place], timeout: float, last: bool
) -> dict[Place, int]:
    module = require_library("confluent_kafka.admin", extra="kafka")
    spec = module.OffsetSpec.latest() if last else module.OffsetSpec.earliest()
    asked = {library().TopicPartition(*place): spec for place in places}
    answers = admin.list_offsets(asked, request_timeout=timeout)
    return {
        (one.topic, one.partition): max(0, answer.result(timeout).offset)
        for one, answer in answers.items()
    }


def list_commits(
    admin: Any, group_id: str, places: Sequence[Place], timeout: float
) -> dict[Place, tuple[int, str | None]]:
    module = library()
    asked = module.ConsumerGroupTopicPartitions(
        group_id, [module.TopicPartition(*place) for place in places]
    )
    (answer,) = admin.list_consumer_group_offsets([asked], request_timeout=timeout).values()
    return {
        (one.topic, one.partition): (one.offset, one.metadata)
        for one in answer.result(timeout).topic_partitions or ()
    }


def delete_topics(admin: Any, names: Sequence[str], timeout: float) -> None:
    """What a temporary group leaves; brokers that cannot be asked keep it."""
    for gone in admin.delete_topics(list(names), request_timeout=timeout).values():
        try:
            gone.result(timeout)
        except library().KafkaException as error:
            errors = library().KafkaError
            if error.args[0].code() not in (
                errors.UNKNOWN_TOPIC_OR_PART,
                errors._UNSUPPORTED_FEATURE,  # noqa: SLF001 - its name
            ):
                raise
