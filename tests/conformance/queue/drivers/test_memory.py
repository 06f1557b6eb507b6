"""The driver suite on memory, with a clock that tests move."""

from lexigram.queue.backends.memory import CAPABILITIES, MemoryBroker, MemoryDriver
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.queue import DriverConformance
from lexigram.testing.fakes import FakeClock

BACKLOG = 250


async def memory():
    broker = MemoryBroker(max_backlog=BACKLOG, dedup_window=60.0, clock=FakeClock())
    driver = MemoryDriver(broker, visibility_timeout=1.0)
    await driver.connect()
    yield driver
    await driver.close()


TestMemoryDriver = conformance_suite(
    DriverConformance,
    memory,
    capabilities=CAPABILITIES,
    neighbour=lambda driver: MemoryDriver(driver.broker, visibility_timeout=1.0),
    max_backlog=lambda driver: BACKLOG,
    advance=lambda driver: driver.broker.clock.advance,
    wall_clock=lambda driver: driver.broker.clock.timestamp,
)
