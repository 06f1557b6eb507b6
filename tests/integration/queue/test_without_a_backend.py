"""A bus that has no backend yet: it has no outbox either, and nobody who could use one minds."""

import pytest

from lexigram.app import Application
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.data.outbox import OutboxProtocol, OutboxStoreProtocol
from lexigram.contracts.infra.schedule import MessageTarget, Schedule, SchedulerProtocol
from lexigram.contracts.infra.schedule.errors import ScheduleTargetError
from lexigram.contracts.queue import QueueProtocol
from lexigram.di.errors import ProviderError
from lexigram.queue import QueueConfig, QueueModule, TransactionalOutbox
from lexigram.schedule import ScheduleModule

pytestmark = pytest.mark.anyio


HOURLY = Schedule(name="hourly", every=3600.0, target=MessageTarget(topic="reports"))
NO_SCHEDULE = ScheduleModule.stub()
ONE_SCHEDULE = ScheduleModule.stub(schedules=[HOURLY])  # made here: it reads its time zone


def application(schedules=NO_SCHEDULE):
    return Application(modules=[QueueModule.configure(QueueConfig()), schedules])


async def test_schedules_start_beside_it():
    async with application() as app:
        assert await app.container.get(SchedulerProtocol).schedules() == []


@pytest.mark.parametrize("service", [OutboxProtocol, OutboxStoreProtocol, TransactionalOutbox])
async def test_who_can_do_without_an_outbox_gets_none(service):
    async with application() as app:
        assert await app.container.resolve_optional(service) is None


async def test_who_asks_for_the_bus_is_told_what_to_add():
    async with application() as app:
        with pytest.raises(ConfigurationError, match="the bus has no backend"):
            app.container.get(QueueProtocol)


async def test_a_schedule_that_makes_messages_is_refused_at_the_start():
    with pytest.raises(ProviderError, match="'hourly' makes messages") as caught:
        async with application(ONE_SCHEDULE):
            pass
    assert isinstance(caught.value.__cause__, ScheduleTargetError)
