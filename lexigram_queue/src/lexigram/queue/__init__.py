"""The Lexigram message bus: one runtime over memory, SQL, Redis, RabbitMQ and NATS."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.contracts.queue import BusMessage, DeliveryGuarantee, QueueError, QueueProtocol
    from lexigram.queue.backends.azure_servicebus import AzureServiceBusQueue
    from lexigram.queue.backends.gcp_pubsub import GCPPubSubQueue
    from lexigram.queue.backends.kafka import KafkaQueue
    from lexigram.queue.backends.memory import InMemoryQueue
    from lexigram.queue.backends.nats import NATSQueue
    from lexigram.queue.backends.rabbitmq import RabbitMQQueue
    from lexigram.queue.backends.redis import RedisQueue
    from lexigram.queue.backends.registry import QueueDriverRegistry
    from lexigram.queue.backends.sql import SqlQueue
    from lexigram.queue.backends.sqs import SQSQueue
    from lexigram.queue.bus import BusQueue
    from lexigram.queue.config import NamedQueueConfig, OutboxConfig, QueueConfig
    from lexigram.queue.consumers.consumer import MessageConsumer
    from lexigram.queue.core.batch_publisher import BatchedPublisher
    from lexigram.queue.core.dlq import DeadLetterQueue
    from lexigram.queue.core.pipeline import MessagePipeline, MiddlewareBase
    from lexigram.queue.di.provider import QueueProvider
    from lexigram.queue.errors import (
        AzureServiceBusQueueError,
        GCPPubSubQueueError,
        HandlerTimeoutError,
        KafkaQueueError,
        NATSQueueError,
        QueueLibraryError,
        RabbitMQQueueError,
        RedisQueueError,
        ReplyTimeoutError,
        SqlQueueError,
        SQSQueueError,
        UndecodableMessageError,
        UnknownDriverError,
    )
    from lexigram.queue.events import (
        ConsumerRegisteredEvent,
        MessageConsumedEvent,
        MessageDeadLetteredEvent,
    )
    from lexigram.queue.hooks import MessageConsumedHook, MessagePublishedHook, QueueDrainedHook
    from lexigram.queue.module import QueueModule
    from lexigram.queue.operations.control import BusControl, GroupStatistics
    from lexigram.queue.operations.dead_letters import DeadLetterFilter, DeadLetters
    from lexigram.queue.options import (
        BusOptions,
        ConsumerOptions,
        DeadLetterPolicy,
        RateLimit,
        RetryPolicy,
    )
    from lexigram.queue.outbox.inbox import Inbox
    from lexigram.queue.outbox.outbox import OutboxRelay, TransactionalOutbox
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.contracts.queue": [
                "BusMessage",
                "DeliveryGuarantee",
                "QueueError",
                "QueueProtocol",
            ],
            "lexigram.queue.backends.azure_servicebus": ["AzureServiceBusQueue"],
            "lexigram.queue.backends.gcp_pubsub": ["GCPPubSubQueue"],
            "lexigram.queue.backends.kafka": ["KafkaQueue"],
            "lexigram.queue.backends.memory": ["InMemoryQueue"],
            "lexigram.queue.backends.nats": ["NATSQueue"],
            "lexigram.queue.backends.rabbitmq": ["RabbitMQQueue"],
            "lexigram.queue.backends.redis": ["RedisQueue"],
            "lexigram.queue.backends.sql": ["SqlQueue"],
            "lexigram.queue.backends.sqs": ["SQSQueue"],
            "lexigram.queue.bus": ["BusQueue"],
            "lexigram.queue.config": ["NamedQueueConfig", "OutboxConfig", "QueueConfig"],
            "lexigram.queue.consumers.consumer": ["MessageConsumer"],
            "lexigram.queue.operations.control": ["BusControl", "GroupStatistics"],
            "lexigram.queue.core.batch_publisher": ["BatchedPublisher"],
            "lexigram.queue.core.dlq": ["DeadLetterQueue"],
            "lexigram.queue.core.pipeline": ["MessagePipeline", "MiddlewareBase"],
            "lexigram.queue.operations.dead_letters": ["DeadLetterFilter", "DeadLetters"],
            "lexigram.queue.di.provider": ["QueueProvider"],
            "lexigram.queue.backends.registry": ["QueueDriverRegistry"],
            "lexigram.queue.errors": [
                "AzureServiceBusQueueError",
                "GCPPubSubQueueError",
                "HandlerTimeoutError",
                "KafkaQueueError",
                "QueueLibraryError",
                "NATSQueueError",
                "RabbitMQQueueError",
                "RedisQueueError",
                "ReplyTimeoutError",
                "SQSQueueError",
                "SqlQueueError",
                "UndecodableMessageError",
                "UnknownDriverError",
            ],
            "lexigram.queue.events": [
                "ConsumerRegisteredEvent",
                "MessageConsumedEvent",
                "MessageDeadLetteredEvent",
            ],
            "lexigram.queue.hooks": [
                "MessageConsumedHook",
                "MessagePublishedHook",
                "QueueDrainedHook",
            ],
            "lexigram.queue.outbox.inbox": ["Inbox"],
            "lexigram.queue.module": ["QueueModule"],
            "lexigram.queue.options": [
                "BusOptions",
                "ConsumerOptions",
                "DeadLetterPolicy",
                "RateLimit",
                "RetryPolicy",
            ],
            "lexigram.queue.outbox.outbox": ["OutboxRelay", "TransactionalOutbox"],
        },
    )

__all__ = [
    "AzureServiceBusQueue",
    "AzureServiceBusQueueError",
    "BatchedPublisher",
    "BusControl",
    "BusMessage",
    "BusOptions",
    "BusQueue",
    "ConsumerOptions",
    "ConsumerRegisteredEvent",
    "DeadLetterFilter",
    "DeadLetterPolicy",
    "DeadLetterQueue",
    "DeadLetters",
    "DeliveryGuarantee",
    "GCPPubSubQueue",
    "GCPPubSubQueueError",
    "GroupStatistics",
    "HandlerTimeoutError",
    "InMemoryQueue",
    "Inbox",
    "KafkaQueue",
    "KafkaQueueError",
    "MessageConsumedEvent",
    "MessageConsumedHook",
    "MessageConsumer",
    "MessageDeadLetteredEvent",
    "MessagePipeline",
    "MessagePublishedHook",
    "MiddlewareBase",
    "NATSQueue",
    "NATSQueueError",
    "NamedQueueConfig",
    "OutboxConfig",
    "OutboxRelay",
    "QueueConfig",
    "QueueDrainedHook",
    "QueueDriverRegistry",
    "QueueError",
    "QueueLibraryError",
    "QueueModule",
    "QueueProtocol",
    "QueueProvider",
    "RabbitMQQueue",
    "RabbitMQQueueError",
    "RateLimit",
    "RedisQueue",
    "RedisQueueError",
    "ReplyTimeoutError",
    "RetryPolicy",
    "SQSQueue",
    "SQSQueueError",
    "SqlQueue",
    "SqlQueueError",
    "TransactionalOutbox",
    "UndecodableMessageError",
    "UnknownDriverError",
]
