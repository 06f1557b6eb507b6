"""All that a driver promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.queue.driver.acking import AckingSpec
from lexigram.testing.conformance.queue.driver.backlogs import BacklogsSpec
from lexigram.testing.conformance.queue.driver.begun import BegunMarkSpec
from lexigram.testing.conformance.queue.driver.dead_letters import DeadLettersSpec
from lexigram.testing.conformance.queue.driver.deduplication import DeduplicationSpec
from lexigram.testing.conformance.queue.driver.durability import DurabilitySpec
from lexigram.testing.conformance.queue.driver.expiry import ExpirySpec
from lexigram.testing.conformance.queue.driver.fairness import FairnessSpec
from lexigram.testing.conformance.queue.driver.foreign import ForeignSpec
from lexigram.testing.conformance.queue.driver.killing import KillingSpec
from lexigram.testing.conformance.queue.driver.leases import LeasesSpec
from lexigram.testing.conformance.queue.driver.ordering import OrderingSpec
from lexigram.testing.conformance.queue.driver.patterns import PatternsSpec
from lexigram.testing.conformance.queue.driver.priorities import PrioritiesSpec
from lexigram.testing.conformance.queue.driver.publishing import PublishingSpec
from lexigram.testing.conformance.queue.driver.receiving import ReceivingSpec
from lexigram.testing.conformance.queue.driver.redriving import RedrivingSpec
from lexigram.testing.conformance.queue.driver.retrying import RetryingSpec
from lexigram.testing.conformance.queue.driver.scheduling import SchedulingSpec
from lexigram.testing.conformance.queue.driver.statistics import DepthSpec, LagSpec
from lexigram.testing.conformance.queue.driver.steering import (
    PausingSpec,
    PeekingSpec,
    PurgingSpec,
)


class DriverConformance(
    PublishingSpec,
    ReceivingSpec,
    ForeignSpec,
    AckingSpec,
    RetryingSpec,
    DeadLettersSpec,
    RedrivingSpec,
    KillingSpec,
    LeasesSpec,
    BegunMarkSpec,
    SchedulingSpec,
    PrioritiesSpec,
    OrderingSpec,
    DeduplicationSpec,
    FairnessSpec,
    PatternsSpec,
    BacklogsSpec,
    PeekingSpec,
    PurgingSpec,
    PausingSpec,
    DepthSpec,
    LagSpec,
    ExpirySpec,
    DurabilitySpec,
):
    """Run it on a driver: ``conformance_suite(DriverConformance, my_driver, capabilities=…)``."""
