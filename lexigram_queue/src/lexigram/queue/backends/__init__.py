"""The backends: one file each, a driver and a thin queue over it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.queue.backends.azure_servicebus import AzureServiceBusQueue
    from lexigram.queue.backends.gcp_pubsub import GCPPubSubQueue
    from lexigram.queue.backends.kafka import KafkaQueue
    from lexigram.queue.backends.memory import InMemoryQueue
    from lexigram.queue.backends.nats import NATSQueue
    from lexigram.queue.backends.rabbitmq import RabbitMQQueue
    from lexigram.queue.backends.redis import RedisQueue
    from lexigram.queue.backends.sql import SqlQueue
    from lexigram.queue.backends.sqs import SQSQueue
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.queue.backends.azure_servicebus": ["AzureServiceBusQueue"],
            "lexigram.queue.backends.gcp_pubsub": ["GCPPubSubQueue"],
            "lexigram.queue.backends.kafka": ["KafkaQueue"],
            "lexigram.queue.backends.memory": ["InMemoryQueue"],
            "lexigram.queue.backends.nats": ["NATSQueue"],
            "lexigram.queue.backends.rabbitmq": ["RabbitMQQueue"],
            "lexigram.queue.backends.redis": ["RedisQueue"],
            "lexigram.queue.backends.sql": ["SqlQueue"],
            "lexigram.queue.backends.sqs": ["SQSQueue"],
        },
    )

__all__ = [
    "AzureServiceBusQueue",
    "GCPPubSubQueue",
    "InMemoryQueue",
    "KafkaQueue",
    "NATSQueue",
    "RabbitMQQueue",
    "RedisQueue",
    "SQSQueue",
    "SqlQueue",
]
