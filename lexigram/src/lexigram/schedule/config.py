"""Section ``schedule``: who fires, how often it looks, and how long firings are kept."""

from __future__ import annotations

from typing import ClassVar

from attrs import field, frozen
from attrs.validators import ge, gt, optional

from lexigram.config import BaseConfig, doc


@frozen(kw_only=True)
class ScheduleConfig(BaseConfig):
    """How this process takes part in firing schedules."""

    config_section: ClassVar[str] = "schedule"

    run: bool = field(
        default=True, metadata=doc("Fire due schedules in this process; others may do it.")
    )
    owner: str = field(
        default="default",
        metadata=doc("Applications that share a database but not their code each have their own."),
    )
    poll: float = field(
        default=1.0,
        validator=gt(0),
        metadata=doc("Seconds between looks without news; SQLite has no news of others."),
    )
    batch: int = field(
        default=100, validator=ge(1), metadata=doc("Ticks fired in one transaction.")
    )
    callback_limit: int = field(
        default=16, validator=ge(1), metadata=doc("Callbacks that run at once in this process.")
    )
    callback_lease: float = field(
        default=30.0,
        validator=gt(0),
        metadata=doc("Seconds after which another process runs the callback of a dead one."),
    )
    callback_timeout: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc("Seconds after which a callback is cancelled and has failed; None: no limit."),
    )
    keep_firings: float = field(
        default=7 * 24 * 3600.0, validator=gt(0), metadata=doc("Seconds until one is forgotten.")
    )
