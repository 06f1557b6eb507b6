"""All that a queue promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.queue.protocol.delivery import (
    BacklogSpec,
    DeliverySpec,
    FieldsSpec,
    HealthSpec,
    PatternSpec,
)
from lexigram.testing.conformance.queue.protocol.failing import RetrySpec, StoppingSpec
from lexigram.testing.conformance.queue.protocol.groups import GroupsSpec, SharingSpec
from lexigram.testing.conformance.queue.protocol.refusing import RefusingSpec


class QueueConformance(
    DeliverySpec,
    GroupsSpec,
    RetrySpec,
    StoppingSpec,
    HealthSpec,
    RefusingSpec,
    BacklogSpec,
    PatternSpec,
    FieldsSpec,
    SharingSpec,
):
    """Run it on a queue: ``conformance_suite(QueueConformance, my_queue, capabilities={...})``."""
