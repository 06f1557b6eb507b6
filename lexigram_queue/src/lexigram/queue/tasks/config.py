"""Section ``queue_jobs``: the broker that notifies workers, and the store of the jobs."""

from __future__ import annotations

from typing import ClassVar, Literal

from attrs import field, frozen

from lexigram.config import BaseConfig, doc, secret
from lexigram.queue.tasks.store import TOPIC


@frozen(kw_only=True)
class BusJobsConfig(BaseConfig):
    """Section ``queue_jobs``. How workers run is section ``tasks``, as without a broker."""

    config_section: ClassVar[str] = "queue_jobs"

    backend: str | None = field(
        default=None, metadata=doc("A backend of section queue by its name; None: the primary one.")
    )
    state: Literal["auto", "sql", "redis", "memory"] = field(
        default="auto",
        metadata=doc("auto: redis with a redis_url, else sql; memory is for one process."),
    )
    redis_url: str | None = field(default=None, metadata=secret("Where the state is, with redis."))
    prefix: str = field(
        default="lexigram:{jobs}",
        metadata=doc("Keys in Redis begin so; the braces keep them on one node of a cluster."),
    )
    topic: str = field(
        default=TOPIC, metadata=doc("Topics of the bus begin so; one for each queue of jobs.")
    )
    poll: float = field(
        default=1.0, metadata=doc("Poll interval in seconds, for jobs without a notification.")
    )

    def __attrs_post_init__(self) -> None:
        if self.poll <= 0:
            raise ValueError("poll must be more than 0")
        if self.state == "redis" and self.redis_url is None:
            raise ValueError("state redis needs a redis_url")
