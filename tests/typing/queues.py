"""Queues and drivers of the bus: settings by name or by configuration, each with its type."""

from typing import assert_type

from lexigram.contracts.queue import QueueDriverProtocol
from lexigram.queue import BusQueue
from lexigram.queue.backends.azure_servicebus import AzureServiceBusDriver, AzureServiceBusQueue
from lexigram.queue.backends.gcp_pubsub import GCPPubSubDriver, GCPPubSubQueue
from lexigram.queue.backends.kafka import KafkaDriver, KafkaQueue
from lexigram.queue.backends.nats import NATSDriver, NATSQueue
from lexigram.queue.backends.rabbitmq import RabbitMQDriver, RabbitMQQueue
from lexigram.queue.backends.redis import RedisDriver, RedisQueue
from lexigram.queue.backends.sqs import SQSDriver, SQSQueue
from lexigram.queue.config import KafkaDriverConfig, RabbitMQDriverConfig

drivers: list[QueueDriverProtocol] = [
    RedisDriver("redis://localhost", prefix="shop", visibility_timeout=5),
    RabbitMQDriver("amqp://localhost/", config=RabbitMQDriverConfig(queue_type="quorum")),
    NATSDriver("nats://localhost", stream="shop"),
    KafkaDriver("localhost:9092", config=KafkaDriverConfig(partitions=12), group_id="shop"),
    SQSDriver("eu-west-1", prefix="shop", endpoint_url="http://localhost:4566"),
    AzureServiceBusDriver("Endpoint=sb://...", queue_name="shop"),
    GCPPubSubDriver("project", topic_id="shop"),
]
queues: list[BusQueue] = [
    RedisQueue("redis://localhost", 20),
    RabbitMQQueue("amqp://localhost/", "shop", 50),
    NATSQueue("nats://localhost", "shop", visibility_timeout=5),
    KafkaQueue("localhost:9092", "client", "shop", "earliest", 100),
    SQSQueue("eu-west-1", "https://sqs.eu-west-1.amazonaws.com/123456789012/shop", 30, 100),
    AzureServiceBusQueue("Endpoint=sb://...", "shop", 10, 5.0, 100),
    GCPPubSubQueue("project", "shop", "shop", 10, 5.0, 100),
]
assert_type(drivers[0].name, str)

RedisDriver("redis://localhost", prefixes="shop")  # type: ignore[call-arg]
RabbitMQDriver("amqp://localhost/", queue_type="quorum")  # type: ignore[call-arg]
RabbitMQDriver(config=KafkaDriverConfig())  # type: ignore[arg-type]
NATSQueue("nats://localhost", visibility_timeout="5")  # type: ignore[arg-type]
KafkaQueue(auto_offset_reset="newest")  # type: ignore[arg-type]
SQSQueue(region=1)  # type: ignore[arg-type]
