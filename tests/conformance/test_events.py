from lexigram.events import EventBus
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.events import EventBusCapability, EventBusConformance
from lexigram.testing.fakes import FakeEventBus

TestEventBus = conformance_suite(EventBusConformance, EventBus, capabilities=EventBusCapability)
TestFakeEventBus = conformance_suite(EventBusConformance, FakeEventBus)
