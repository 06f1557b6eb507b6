"""Errors of the bus: one class per broker, and the errors found before a broker is called."""

from __future__ import annotations

from lexigram.contracts.queue.errors import QueueError


class RedisQueueError(QueueError):
    """Redis failed or refused an operation."""

    code = "LEX_ERR_QUEUE_002"
    default_backend, default_message = "redis", "Redis queue error"


class RabbitMQQueueError(QueueError):
    """RabbitMQ failed or refused an operation."""

    code = "LEX_ERR_QUEUE_003"
    default_backend, default_message = "rabbitmq", "RabbitMQ error"


class KafkaQueueError(QueueError):
    """Kafka failed or refused an operation."""

    code = "LEX_ERR_QUEUE_004"
    default_backend, default_message = "kafka", "Kafka error"


class SQSQueueError(QueueError):
    """SQS failed or refused an operation."""

    code = "LEX_ERR_QUEUE_005"
    default_backend, default_message = "sqs", "SQS error"


class AzureServiceBusQueueError(QueueError):
    """Azure Service Bus failed or refused an operation."""

    code = "LEX_ERR_QUEUE_006"
    default_backend, default_message = "azure_servicebus", "Azure Service Bus error"


class GCPPubSubQueueError(QueueError):
    """Google Pub/Sub failed or refused an operation."""

    code = "LEX_ERR_QUEUE_007"
    default_backend, default_message = "gcp_pubsub", "GCP Pub/Sub error"


class NATSQueueError(QueueError):
    """NATS JetStream failed or refused an operation."""

    code = "LEX_ERR_QUEUE_008"
    default_backend, default_message = "nats", "NATS error"


class SqlQueueError(QueueError):
    """The database of the sql driver failed or refused an operation."""

    code = "LEX_ERR_QUEUE_009"
    default_backend, default_message = "sql", "SQL queue error"


class UnknownDriverError(QueueError, ValueError):
    """The configuration names a driver that is not installed."""

    code = "LEX_ERR_QUEUE_106"
    is_retryable = False


class QueueLibraryError(QueueError, ImportError):
    """The client library of a driver is not installed; the hint names the extra."""

    code = "LEX_ERR_QUEUE_107"
    is_retryable = False


class ReplyTimeoutError(QueueError, TimeoutError):
    """A request got no reply in time."""

    code = "LEX_ERR_QUEUE_108"


class UndecodableMessageError(QueueError, ValueError):
    """The body is not what the handler declares."""

    code = "LEX_ERR_QUEUE_109"
    is_retryable = False


class HandlerTimeoutError(QueueError, TimeoutError):
    """A handler took longer than its time limit and was cancelled; the message is tried again."""

    code = "LEX_ERR_QUEUE_110"
