"""Section ``cache``: the primary cache, and others by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from attrs import field, frozen
from attrs.validators import ge, gt, optional

from lexigram.config import BaseConfig, doc, secret

# Settings that mean something to some backends only; None is the default of the backend.
_OWNERS: Mapping[str, tuple[str, ...]] = {
    "max_entries": ("memory",),
    "max_bytes": ("memory",),
    "share_values": ("memory",),
    "redis_url": ("redis",),
    "timeout": ("redis",),
    "max_connections": ("redis",),
    "sweep_interval": ("sql",),
    "sweep_batch": ("sql",),
    "namespace": ("sql", "redis"),
    "load_lease": ("sql", "redis"),
}


@frozen(kw_only=True)
class CacheSettings:
    """One cache, its locks and its idempotency store; a setting of another backend is refused."""

    backend: Literal["memory", "sql", "redis"] = "memory"
    serializer: str | None = field(
        default=None, metadata=doc("Codec of the values; None: msgpack.")
    )
    max_entries: int | None = field(
        default=None, validator=optional(ge(1)), metadata=doc("memory: values kept; None: 10000.")
    )
    max_bytes: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("memory: bytes of keys and values; None: no limit."),
    )
    share_values: bool | None = field(
        default=None,
        metadata=doc("memory: keep the objects themselves, of any kind; None: copies."),
    )
    redis_url: str | None = field(default=None, metadata=secret("redis: redis://host:6379/0."))
    timeout: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc("redis: seconds to wait for an answer; None: 2."),
    )
    max_connections: int | None = field(
        default=None, validator=optional(ge(1)), metadata=doc("redis: connections; None: 20.")
    )
    sweep_interval: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc("sql: seconds between removals of expired rows; None: 60."),
    )
    sweep_batch: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("sql: rows removed in one transaction; None: 1000."),
    )
    namespace: str | None = field(
        default=None,
        metadata=doc("sql, redis: what tells its keys from others; None: from its name."),
    )
    load_lease: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc("sql, redis: seconds others wait for a process that died loading; None: 10."),
    )

    def __attrs_post_init__(self) -> None:
        for name, backends in _OWNERS.items():
            if getattr(self, name) is not None and self.backend not in backends:
                raise ValueError(
                    f"{name} is a setting of backend {' and '.join(backends)}, "
                    f"and this one is {self.backend}"
                )
        if self.backend == "redis" and self.redis_url is None:
            raise ValueError("backend redis needs redis_url")
        if self.share_values and (self.max_bytes is not None or self.serializer is not None):
            raise ValueError("share_values keeps objects as they are: no max_bytes, no serializer")
        if self.namespace is not None and not 0 < len(self.namespace) <= 100:
            raise ValueError("namespace has 1 to 100 characters")


@frozen(kw_only=True)
class CacheConfig(BaseConfig):
    """Section ``cache``."""

    config_section: ClassVar[str] = "cache"

    primary: CacheSettings = field(
        factory=CacheSettings, metadata=doc("The one that is asked for without a name.")
    )
    named: Mapping[str, CacheSettings] = field(
        factory=dict[str, CacheSettings],
        metadata=doc('Others: Annotated[CacheProtocol, Named("sessions")].'),
    )
