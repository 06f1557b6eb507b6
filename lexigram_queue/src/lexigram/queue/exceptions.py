"""The errors of the bus, under the path of the 0.1 line."""

from lexigram.queue.errors import (
    AzureServiceBusQueueError,
    GCPPubSubQueueError,
    KafkaQueueError,
    RabbitMQQueueError,
    RedisQueueError,
    SQSQueueError,
)

__all__ = [
    "AzureServiceBusQueueError",
    "GCPPubSubQueueError",
    "KafkaQueueError",
    "RabbitMQQueueError",
    "RedisQueueError",
    "SQSQueueError",
]
