"""A process of the crash tests: ``process.py <url> <work>`` runs an application until killed.

``jobs`` makes rows of a plain table, ``queue`` jobs of lexigram.tasks, ``callbacks`` calls.
"""

import sys

from lexigram.app import Application
from lexigram.contracts.core.result import Ok
from lexigram.contracts.infra.tasks.protocols import TaskQueueProtocol
from lexigram.di import Provider
from lexigram.schedule import (
    JobTarget,
    MisfirePolicy,
    Schedule,
    ScheduleConfig,
    ScheduleModule,
    scheduled,
)
from lexigram.sql import Database, SqlConfig, SqlModule
from lexigram.tasks import PoolSettings, TasksConfig, TasksModule, job


class TableQueue:
    """Jobs as rows without any key: a job made twice would be there twice."""

    def __init__(self, database):
        self.database = database

    async def enqueue(self, task):
        await self.database.execute_insert("made", {"tick": task["kwargs"]["tick"]})
        return Ok("a row")


class QueueProvider(Provider):
    name = "tasks"
    dependencies = ("sql",)

    async def register(self, container):
        def queue(database: Database) -> TaskQueueProtocol:
            return TableQueue(database)

        container.singleton(TaskQueueProtocol, queue)


@scheduled(every=1.0, name="call", misfire=MisfirePolicy.FIRE_ALL, catch_up=1000)
async def call(database: Database):
    await database.execute_insert("called", {"process": 1})


@job("work")
async def work_off(tick: str, database: Database):
    await database.execute_insert("made", {"tick": tick})


# Jobs of a killed process are handed out again after two seconds.
TASKS = TasksConfig(pools={"default": PoolSettings(lease=2.0)}, poll=0.1)


def main():
    _, url, work = sys.argv
    every_second = Schedule(
        name="every second",
        target=JobTarget(name="work", tick_argument="tick"),
        cron="* * * * * *",
        timezone="Europe/Berlin",
        misfire=MisfirePolicy.FIRE_ALL,
        catch_up=1000,
    )
    schedules = [call] if work == "callbacks" else [every_second]
    tasks = [TasksModule.configure(TASKS, handlers=[work_off])] if work == "queue" else []
    Application(
        "e2e",
        modules=[
            SqlModule.configure(SqlConfig(url=url, busy_timeout=30.0)),
            ScheduleModule.configure(ScheduleConfig(callback_lease=1.0), schedules=schedules),
            *tasks,
        ],
        providers=[] if tasks else [QueueProvider()],
    ).run()


main()
