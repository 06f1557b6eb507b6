"""The conformance suites of the bus: of QueueDriverProtocol and of QueueProtocol."""

from lexigram.testing.conformance.queue.driver.suite import DriverConformance
from lexigram.testing.conformance.queue.protocol.spec import QueueCapability
from lexigram.testing.conformance.queue.protocol.suite import QueueConformance

__all__ = ["DriverConformance", "QueueCapability", "QueueConformance"]
