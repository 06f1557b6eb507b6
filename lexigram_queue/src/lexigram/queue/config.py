"""Which backends the bus has, how each behaves, and which is used when none is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeVar, cast

from attrs import Attribute, evolve, field, frozen
from attrs.validators import and_, ge, gt, le, optional

from lexigram.config import BaseConfig, doc, secret
from lexigram.contracts.queue import DeliveryGuarantee
from lexigram.contracts.queue.limits import MAX_RETRIES, MAX_SECONDS
from lexigram.queue.constants import (
    CONFIG_SECTION,
    DEFAULT_CONSUMER_CONCURRENCY,
    DEFAULT_CONSUMER_PREFETCH,
    DEFAULT_MAX_BACKLOG,
    DEFAULT_MAX_DELIVERIES,
    DEFAULT_MAX_RETRIES,
    DEFAULT_VISIBILITY_TIMEOUT,
)
from lexigram.queue.options import DeadLetterPolicy

Config = TypeVar("Config")  # of one driver


def override(config: Config, **settings: object) -> Config:
    """``config`` with those of ``settings`` that are not None."""
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    return cast("Config", evolve(cast("Any", config), **given))


@frozen(kw_only=True)
class MemoryDriverConfig:
    """Settings of driver ``memory``."""

    share: bool = field(
        default=False, metadata=doc("Hand payload objects on as they are, without a copy.")
    )
    max_dead_letters: int = field(
        default=1000, validator=ge(1), metadata=doc("Per group; then the oldest goes.")
    )
    publish_timeout: float = field(
        default=30.0, validator=gt(0), metadata=doc("Seconds a publisher waits for room.")
    )


@frozen(kw_only=True)
class SqlDriverConfig:
    """Settings of driver ``sql``."""

    url: str | None = field(
        default=None,
        metadata=secret("A database of its own; without it, that of the application (SqlModule)."),
    )
    poll_interval: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc(
            "Poll interval in seconds; default 1 on PostgreSQL (with notifications), else 0.1."
        ),
    )


@frozen(kw_only=True)
class RedisDriverConfig:
    """Settings of driver ``redis``."""

    url: str | None = field(default=None, metadata=secret("Where the broker listens."))
    max_connections: int = field(
        default=10,
        validator=ge(1),
        metadata=doc("For commands; every consumer that waits has one more."),
    )
    socket_timeout: float = field(default=5.0, validator=gt(0), metadata=doc("Seconds."))
    prefix: str = field(default="lexigram", metadata=doc("Its keys begin so."))


@frozen(kw_only=True)
class RabbitMQDriverConfig:
    """Settings of driver ``rabbitmq``."""

    url: str | None = field(default=None, metadata=secret("Where the broker listens."))
    exchange: str = field(
        default="lexigram", metadata=doc("Its name begins the name of every queue, too.")
    )
    prefetch_count: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("Most unsettled messages of a group here, whatever its consumers ask for."),
    )
    queue_type: Literal["classic", "quorum"] = field(
        default="classic", metadata=doc("quorum: copies on several nodes, but no priorities.")
    )
    timeout: float = field(
        default=10.0, validator=gt(0), metadata=doc("Seconds a call waits for the broker.")
    )
    heartbeat: int = field(
        default=20,
        validator=ge(1),
        metadata=doc("Heartbeat interval in seconds; a dead connection is detected after three."),
    )


@frozen(kw_only=True)
class NATSDriverConfig:
    """Settings of driver ``nats``."""

    url: str | None = field(default=None, metadata=secret("Where the broker listens."))
    stream: str = field(default="lexigram", metadata=doc("Prefix of its streams."))
    replicas: int = field(
        default=1, validator=ge(1), metadata=doc("Copies in a cluster, when streams are made.")
    )
    max_ack_pending: int = field(
        default=-1,
        metadata=doc("Messages a group may have in flight or delayed, in all processes; -1: any."),
    )
    connect_timeout: float = field(default=5.0, validator=gt(0), metadata=doc("Seconds."))
    request_timeout: float = field(default=5.0, validator=gt(0), metadata=doc("Seconds."))


@frozen(kw_only=True)
class KafkaDriverConfig:
    """Settings of driver ``kafka``."""

    bootstrap_servers: str | None = field(
        default=None, metadata=doc("Brokers to ask first: host:port, separated by commas.")
    )
    client_id: str = field(default="lexigram", metadata=doc("How brokers call it in their logs."))
    group_id: str = field(
        default="lexigram-consumers",
        metadata=doc("Begins the names of its consumer groups, and of its control topic."),
    )
    auto_offset_reset: Literal["earliest", "latest"] = field(
        default="latest",
        metadata=doc("Where a group goes on whose place Kafka deleted (retention)."),
    )
    partitions: int = field(
        default=6, validator=ge(1), metadata=doc("Of topics it makes: most members with work.")
    )
    replicas: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("Of topics it makes; None: as the cluster has it."),
    )
    timeout: float = field(
        default=10.0, validator=gt(0), metadata=doc("Seconds a call waits for the brokers.")
    )
    session_timeout: float = field(
        default=10.0,
        validator=gt(0),
        metadata=doc("Seconds after which a silent member is dead; brokers want 6 or more."),
    )
    rebalance_timeout: float = field(
        default=10.0,
        validator=ge(0),
        metadata=doc("Seconds handlers may finish when their partition goes to another member."),
    )
    max_message_bytes: int = field(
        default=1_000_000, validator=ge(100_000), metadata=doc("As message.max.bytes has it.")
    )
    properties: Mapping[str, Any] = field(
        factory=dict[str, Any],
        metadata=secret("Further settings of librdkafka: security.protocol, sasl.*, ssl.*"),
    )


@frozen(kw_only=True)
class SQSDriverConfig:
    """Settings of driver ``sqs``."""

    region: str = "us-east-1"
    queue_url: str | None = field(
        default=None,
        metadata=doc("Endpoint, and as its last part how the names of the queues begin."),
    )
    visibility_timeout: int | None = field(
        default=None, validator=optional(ge(1)), metadata=doc("None: that of the backend.")
    )
    access_key_id: str | None = field(
        default=None, metadata=secret("Without it, what AWS clients find: profile, role.")
    )
    secret_access_key: str | None = field(default=None, metadata=secret("Of the key."))
    fifo: bool = field(
        default=False, metadata=doc("FIFO queues: ordering keys, and ids are taken once.")
    )
    groups_refresh: float = field(
        default=2.0,
        validator=ge(0),
        metadata=doc("Seconds a publisher keeps its list of groups; a new group waits so long."),
    )
    inline_bytes: int = field(
        default=256 * 1024,
        validator=ge(1),
        metadata=doc("Larger bodies go to the blob store, where the application has one."),
    )
    timeout: float = field(
        default=10.0, validator=gt(0), metadata=doc("Seconds a call waits for SQS.")
    )


@frozen(kw_only=True)
class AzureServiceBusDriverConfig:
    """Settings of driver ``azure_servicebus``."""

    connection_str: str | None = field(
        default=None, metadata=secret("With a key that has Manage, Send and Listen.")
    )
    management_str: str | None = field(
        default=None,
        metadata=secret("Where management listens elsewhere: the emulator, on port 5300."),
    )
    queue_name: str = field(default="", metadata=doc("Its entities begin so; empty: lexigram."))
    sessions: bool = field(
        default=False,
        metadata=doc("Ordering keys as sessions; a group has one more queue, from its beginning."),
    )
    max_message_count: int = field(
        default=10, validator=ge(1), metadata=doc("Messages a group is sent ahead; and sessions.")
    )
    max_wait_time: float = field(
        default=5.0, validator=gt(0), metadata=doc("Seconds one request for a session waits.")
    )
    timeout: float = field(
        default=15.0, validator=gt(0), metadata=doc("Seconds a connect waits for the service.")
    )


@frozen(kw_only=True)
class GCPPubSubDriverConfig:
    """Settings of driver ``gcp_pubsub``."""

    project_id: str | None = field(
        default=None, metadata=doc("Without it, the project of the credentials.")
    )
    topic_id: str = field(default="", metadata=doc("Its topics begin so; empty: lexigram."))
    subscription_id: str = field(
        default="", metadata=doc("Its subscriptions begin so; empty: as its topics.")
    )
    max_messages: int = field(
        default=10, validator=ge(1), metadata=doc("Messages one pull asks for, at most.")
    )
    max_wait_time: float = field(
        default=5.0, validator=gt(0), metadata=doc("Seconds one pull waits for messages.")
    )
    credentials_file: str | None = field(
        default=None,
        metadata=doc("Key of a service account; without it, the application default credentials."),
    )
    endpoint: str | None = field(
        default=None, metadata=doc("Of a region, such as europe-west1-pubsub.googleapis.com.")
    )
    emulator_host: str | None = field(
        default=None, metadata=doc("Host and port of an emulator: no TLS, no credentials.")
    )
    timeout: float = field(
        default=15.0, validator=gt(0), metadata=doc("Seconds a call waits for the service.")
    )
    min_backoff: float | None = field(
        default=None,
        validator=optional([ge(0), le(600)]),
        metadata=doc("Retry policy: seconds until what nobody settled comes again; None: at once."),
    )
    max_backoff: float = field(
        default=600.0,
        validator=[ge(0), le(600)],
        metadata=doc("Retry policy: the longest of these pauses, which double each time."),
    )


@frozen(kw_only=True)
class NamedQueueConfig:
    """One backend of the bus, known by its name. All times are seconds."""

    name: str
    # The backend used when no name is given; without any, the first one.
    primary: bool = False
    driver: str = field(default="memory", metadata=doc("By entry point lexigram.queue.drivers."))
    required: bool = field(
        default=True, metadata=doc("False: the application starts without the broker.")
    )
    wait_for_broker: float = field(
        default=0.0, validator=ge(0), metadata=doc("How long a start waits for the broker.")
    )
    # What is sent.
    delivery_guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE
    max_retries: int = field(
        default=DEFAULT_MAX_RETRIES,
        validator=and_(ge(0), le(MAX_RETRIES)),
        metadata=doc("For messages that keep the default of a message."),
    )
    serializer: str = field(default="json", metadata=doc("json, msgpack or a registered codec."))
    default_ttl: float | None = field(
        default=None, validator=optional(and_(gt(0), le(MAX_SECONDS)))
    )
    max_backlog: int = field(
        default=DEFAULT_MAX_BACKLOG,
        validator=ge(1),
        metadata=doc("Messages a topic without a group keeps; on memory also of a group."),
    )
    dedup_window: float = field(
        default=0.0, validator=ge(0), metadata=doc("An id is taken once in this time; 0: not kept.")
    )
    # What is consumed.
    prefetch: int = field(default=DEFAULT_CONSUMER_PREFETCH, validator=ge(1))
    concurrency: int = field(default=DEFAULT_CONSUMER_CONCURRENCY, validator=ge(1))
    visibility_timeout: float = field(default=DEFAULT_VISIBILITY_TIMEOUT, validator=gt(0))
    handler_timeout: float | None = field(default=None, validator=optional(gt(0)))
    max_deliveries: int = field(
        default=DEFAULT_MAX_DELIVERIES,
        validator=ge(1),
        metadata=doc("A message delivered more often kills its consumers: it is set aside."),
    )
    retry_base: float = field(
        default=1.0,
        validator=and_(ge(0), le(MAX_SECONDS)),
        metadata=doc("Retry policy: seconds before the first retry."),
    )
    retry_cap: float = field(
        default=300.0,
        validator=and_(ge(0), le(MAX_SECONDS)),
        metadata=doc("Retry policy: the longest delay in seconds."),
    )
    expired: Literal["dead_letter", "drop"] = "dead_letter"
    dead_letters: DeadLetterPolicy = field(factory=DeadLetterPolicy)
    drain_timeout: float = field(
        default=20.0, validator=ge(0), metadata=doc("How long a stop waits for running handlers.")
    )
    # The driver's own settings; ``options`` are for drivers of others.
    memory: MemoryDriverConfig = MemoryDriverConfig()
    sql: SqlDriverConfig = SqlDriverConfig()
    redis: RedisDriverConfig | None = None
    rabbitmq: RabbitMQDriverConfig | None = None
    nats: NATSDriverConfig | None = None
    kafka: KafkaDriverConfig | None = None
    sqs: SQSDriverConfig | None = None
    azure_servicebus: AzureServiceBusDriverConfig | None = None
    gcp_pubsub: GCPPubSubDriverConfig | None = None
    options: Mapping[str, Any] = field(factory=dict[str, Any])


@frozen(kw_only=True)
class OutboxConfig:
    """How the relay of the outbox works. All times are seconds."""

    batch: int = field(default=200, validator=ge(1), metadata=doc("Messages of one round trip."))
    lease: float = field(
        default=30.0,
        validator=gt(0),
        metadata=doc("What a killed relay had is taken over after this time."),
    )
    poll_interval: float = field(
        default=5.0, validator=gt(0), metadata=doc("Poll interval, beside notifications.")
    )


def _as_tuple(backends: Iterable[NamedQueueConfig]) -> tuple[NamedQueueConfig, ...]:
    return tuple(backends)


def _names_are_clear(_: object, __: Attribute[Any], backends: tuple[NamedQueueConfig, ...]) -> None:
    names = [backend.name for backend in backends]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two backends are named {', '.join(twice)}")
    primaries = [backend.name for backend in backends if backend.primary]
    if len(primaries) > 1:
        raise ValueError(f"only one backend can be primary, not {' and '.join(primaries)}")


@frozen(kw_only=True)
class QueueConfig(BaseConfig):
    """Section ``queue``: the backends of the bus."""

    config_section: ClassVar[str] = CONFIG_SECTION

    backends: tuple[NamedQueueConfig, ...] = field(
        default=(), converter=_as_tuple, validator=_names_are_clear
    )
    # Both need SqlModule.
    outbox: OutboxConfig = OutboxConfig()
    inbox_retention: float = field(
        default=7 * 24 * 3600.0,
        validator=gt(0),
        metadata=doc("Seconds an exactly-once consumer remembers what it handled."),
    )

    sample_interval: float = field(
        default=15.0,
        validator=gt(0),
        metadata=doc("Seconds between samples of depth, lag and dead letters, for metrics."),
    )

    @classmethod
    def from_named_backend(cls, entry: NamedQueueConfig) -> QueueConfig:
        """The configuration of a bus with one backend."""
        return cls(backends=(entry,))

    @property
    def primary(self) -> NamedQueueConfig | None:
        """The backend used when none is named: the marked one, else the first, else None."""
        marked = (backend for backend in self.backends if backend.primary)
        return next(marked, self.backends[0] if self.backends else None)
