"""All that an event bus promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.events.cancellation import CancellationSpec
from lexigram.testing.conformance.events.delivery import DeliverySpec
from lexigram.testing.conformance.events.failures import FailuresSpec
from lexigram.testing.conformance.events.idleness import IdlenessSpec
from lexigram.testing.conformance.events.inheritance import InheritanceSpec
from lexigram.testing.conformance.events.subscriptions import SubscriptionsSpec


class EventBusConformance(
    DeliverySpec,
    InheritanceSpec,
    SubscriptionsSpec,
    FailuresSpec,
    CancellationSpec,
    IdlenessSpec,
):
    """Run it on an event bus: ``conformance_suite(EventBusConformance, MyBus)``."""
