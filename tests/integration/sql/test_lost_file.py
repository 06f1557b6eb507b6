"""Workers and the bus on a SQLite file that is deleted or replaced: they stop and say why, once."""

import logging
import shutil

import pytest

from lexigram.app import Application
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.queue import BusMessage, QueueError
from lexigram.di import Module, module
from lexigram.queue import MessageConsumer, NamedQueueConfig, QueueConfig, QueueModule
from lexigram.queue.backends.sql import SqlQueue
from lexigram.queue.config import OutboxConfig
from lexigram.schedule import ScheduleConfig, ScheduleModule, scheduled
from lexigram.sql import Database, SqlConfig, SqlModule
from lexigram.sql.errors import DatabaseFileLostError, is_file_lost
from lexigram.tasks import TasksConfig, TasksModule, job
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    DurableEngine,
    NewRun,
    RunPlan,
    StepPlan,
    Terms,
    Worker,
    WorkerConfig,
)

pytestmark = pytest.mark.anyio

PLAN = RunPlan(workflow_id="w", steps=[StepPlan(name="a", step_type="parse", handler="work")])


@pytest.fixture
def file(tmp_path, migrated_file):
    shutil.copy(migrated_file, tmp_path / "app.db")
    return tmp_path / "app.db"


def delete(file, migrated_file):
    file.unlink()


def restore(file, migrated_file):
    """A good database with the same tables, at the same place: as a backup would be."""
    backup = file.with_name("backup.db")
    shutil.copy(migrated_file, backup)
    backup.replace(file)


losing = pytest.mark.parametrize("lose", [delete, restore])


def errors(caplog, file):
    """Records at ERROR that name the file, with their tracebacks."""
    texts = [
        f"{record.getMessage()} {record.exc_text or ''} {record.exc_info} {getattr(record, 'fields', '')}"
        for record in caplog.records
        if record.levelno >= logging.ERROR
    ]
    return [text for text in texts if str(file) in text]


@losing
async def test_a_durable_worker_claims_no_more_and_logs_why(file, migrated_file, lose, caplog):
    done = []
    async with Database(f"sqlite:///{file}") as database:
        engine = DurableEngine(database, Terms(lease=2.0))
        worker = Worker(WorkerConfig(poll_interval=0.05), engine, {"work": lambda: done.append(1)})
        await worker.start()
        try:
            submitted = await engine.submit(PLAN, [NewRun()])

            async def is_written():
                return (await engine.stats(submitted.group_id)).completed

            await wait_until(is_written)
            lose(file, migrated_file)
            await worker.ended()
            assert is_file_lost(worker.failure)
            assert not worker.is_alive
            assert len(errors(caplog, file)) == 1
        finally:
            await worker.stop(0.0)


class Consumer(MessageConsumer):
    topic = "orders"
    group = "g"

    async def handle(self, payload: object) -> None: ...


@module(imports=[QueueModule.scope(Consumer)])
class Shop(Module):
    pass


@job("tidy")
async def tidy() -> None: ...


@scheduled(every=0.1, name="often")
async def often() -> None: ...


def application(file):
    return Application(
        "shop",
        modules=[
            SqlModule.configure(SqlConfig(url=f"sqlite:///{file}")),
            QueueModule.configure(
                QueueConfig(
                    backends=[NamedQueueConfig(name="events", driver="sql")],
                    outbox=OutboxConfig(poll_interval=0.1),
                )
            ),
            TasksModule.configure(TasksConfig(), handlers=[tidy]),
            ScheduleModule.configure(ScheduleConfig(), schedules=[often]),
            Shop,
        ],
    )


@losing
async def test_bus_jobs_and_schedules_stop_log_why_and_are_unhealthy(
    file, migrated_file, lose, caplog
):
    async with application(file):
        file.unlink()
        await wait_until(lambda: any("relayed no more" in text for text in errors(caplog, file)))


async def test_a_bus_with_a_database_of_its_own_reports_the_loss(file):
    async with SqlQueue(f"sqlite:///{file}") as queue:
        await queue.publish("orders", BusMessage(payload=1))
        file.unlink()
        with pytest.raises(QueueError) as raised:
            await queue.publish("orders", BusMessage(payload=2))
        assert isinstance(raised.value.__cause__, DatabaseFileLostError)
        health = await queue.health_check()
        assert health.status is HealthStatus.UNHEALTHY
        assert f"{file} was deleted while it was open" in health.error
