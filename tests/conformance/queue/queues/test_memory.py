"""The queue suite on memory, and on the smallest complete queue somebody might write."""

import asyncio
import dataclasses

from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue.limits import check_message, check_topic
from lexigram.queue import BusOptions, InMemoryQueue, RetryPolicy
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.queue import QueueCapability, QueueConformance

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))


async def memory():
    queue = InMemoryQueue(options=QUICK)
    await queue.connect()
    yield queue
    await queue.close()


TestInMemoryQueue = conformance_suite(
    QueueConformance,
    memory,
    capabilities=set(QueueCapability),
    neighbour=lambda queue: InMemoryQueue(broker=queue.driver.broker, options=QUICK),
)


class SmallQueue:
    """Every group is a list of handlers that take turns; nothing is kept."""

    def __init__(self):
        self.groups = {}
        self.tasks = set()
        self.connected = False

    async def connect(self):
        self.connected = True

    async def close(self):
        while self.tasks:
            await asyncio.gather(*self.tasks)
        self.connected = False

    async def publish(self, topic, message):
        check_topic(topic)
        message = dataclasses.replace(message, topic=topic)
        check_message(message)
        for (known, _), members in self.groups.items():
            if known == topic:
                members.append(members.pop(0))
                task = asyncio.create_task(self.deliver(members[-1], message))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
        return message

    async def deliver(self, handler, message):
        while True:
            try:
                return await handler(message)
            except ValueError:
                if not message.should_retry():
                    return None
                message = dataclasses.replace(message, retry_count=message.retry_count + 1)

    async def subscribe(self, topic, handler, *, group="default"):
        self.groups.setdefault((topic, group), []).append(handler)

    async def health_check(self, timeout=5.0):
        status = HealthStatus.HEALTHY if self.connected else HealthStatus.UNHEALTHY
        return HealthCheckResult("small", status)


async def small():
    queue = SmallQueue()
    await queue.connect()
    yield queue
    await queue.close()


TestSmallQueue = conformance_suite(
    QueueConformance, small, capabilities=QueueConformance.core | {QueueCapability.FIELDS}
)
