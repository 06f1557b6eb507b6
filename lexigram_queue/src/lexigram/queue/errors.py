"""Errors of the bus: one class per broker, and what is wrong before a broker is asked."""

from __future__ import annotations

from lexigram.contracts.queue.errors import QueueError


class RedisQueueError(QueueError):
    """Redis did not do what the bus asked."""

    code = "LEX_ERR_QUEUE_002"
    default_backend, default_message = "redis", "Redis queue error"


class RabbitMQQueueError(QueueError):
    """RabbitMQ did not do what the bus asked."""

    code = "LEX_ERR_QUEUE_003"
    default_backend, default_message = "rabbitmq", "RabbitMQ error"


class KafkaQueueError(QueueError):
    """Kafka did not do what the bus asked."""

    code = "LEX_ERR_QUEUE_004"
    default_backend, default_message = "kafka", "Kafka error"


class SQSQueueError(QueueError):
    """SQS did not do what the bus asked."""

    code = "LEX_ERR_QUEUE_005"
    default_backend, default_message = "sqs", "SQS error"


class AzureServiceBusQueueError(QueueError):
    """Azure Service Bus did not do what the bus asked."""

    code = "LEX_ERR_QUEUE_006"
    default_backend, default_message = "azure_servicebus", "Azure Service Bus error"


class GCPPubSubQueueError(QueueError):
    """Google Pub/Sub did not do what the bus asked."""

    code = "LEX_ERR_QUEUE_007"
    default_backend, default_message = "gcp_pubsub", "GCP Pub/Sub error"


class NATSQueueError(QueueError):
    """NATS JetStream did not do what the bus asked."""

    code = "LEX_ERR_QUEUE_008"
    default_backend, default_message = "nats", "NATS error"


class SqlQueueError(QueueError):
    """The database of the sql driver did not do what the bus asked."""

    code = "LEX_ERR_QUEUE_009"
    default_backend, default_message = "sql", "SQL queue error"


class UnknownDriverError(QueueError, ValueError):
    """The configuration names a driver that is not installed."""

    code = "LEX_ERR_QUEUE_106"


class QueueLibraryError(QueueError, ImportError):
    """The client library of a driver is not installed; says which extra brings it."""

    code = "LEX_ERR_QUEUE_107"


class ReplyTimeoutError(QueueError, TimeoutError):
    """Nobody answered a request in time."""

    code = "LEX_ERR_QUEUE_108"


class UndecodableMessageError(QueueError, ValueError):
    """The body is not what the handler declares."""

    code = "LEX_ERR_QUEUE_109"


class HandlerTimeoutError(QueueError, TimeoutError):
    """A handler took longer than its time limit and was cancelled; the message is tried again."""

    code = "LEX_ERR_QUEUE_110"
