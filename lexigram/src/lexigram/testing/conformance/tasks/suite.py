"""All that a task queue promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.tasks.control import ControlSpec
from lexigram.testing.conformance.tasks.counts import CountsSpec
from lexigram.testing.conformance.tasks.delivery import DeliverySpec
from lexigram.testing.conformance.tasks.leasing import LeasingSpec
from lexigram.testing.conformance.tasks.options import (
    DependenciesSpec,
    IdempotencySpec,
    SharingSpec,
    TimeSpec,
    UniquenessSpec,
)
from lexigram.testing.conformance.tasks.order import OrderSpec
from lexigram.testing.conformance.tasks.refusal import RefusalSpec


class TaskQueueConformance(
    DeliverySpec,
    OrderSpec,
    RefusalSpec,
    CountsSpec,
    LeasingSpec,
    ControlSpec,
    TimeSpec,
    UniquenessSpec,
    IdempotencySpec,
    DependenciesSpec,
    SharingSpec,
):
    """Run it on a task queue: ``conformance_suite(TaskQueueConformance, MyQueue)``."""
