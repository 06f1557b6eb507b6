"""A scheduler on both databases, a clock in the hand, and a queue that joins transactions."""

from datetime import UTC, datetime

import pytest

from lexigram import clock
from lexigram.contracts.core.result import Err, Ok
from lexigram.contracts.infra.tasks.errors import TaskQueueError
from lexigram.schedule import ScheduleConfig, Scheduler
from lexigram.schedule.callbacks import Callbacks
from lexigram.schedule.report import Reporter
from lexigram.schedule.targets import Targets
from lexigram.sql import Database
from lexigram.testing.fakes import FakeClock


class TableQueue:
    """Jobs as rows of a table in the same database; refuses on demand."""

    def __init__(self, db):
        self.db = db
        self.refuses = set()

    async def enqueue(self, task):
        number = (await self.db.execute_query("SELECT count(*) AS n FROM jobs")).rows[0]["n"]
        row = {"id": f"job-{number}", "name": task["name"], "kwargs": str(task["kwargs"])}
        row["number"] = number
        await self.db.execute_insert("jobs", row)
        if task["name"] in self.refuses:
            return Err(TaskQueueError("full"))
        return Ok(row["id"])

    async def names(self):
        return [
            row["name"]
            for row in (await self.db.execute_query("SELECT name FROM jobs ORDER BY number")).rows
        ]


@pytest.fixture
def now():
    with clock.use(FakeClock(datetime(2026, 1, 1, 12, tzinfo=UTC))) as fake:
        yield fake


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
def url(request):
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_url")
    return request.getfixturevalue("postgres_url")


@pytest.fixture
async def db(url):
    async with Database(url) as database:
        await database.execute(
            "CREATE TABLE jobs (id TEXT PRIMARY KEY, name TEXT, kwargs TEXT, number INTEGER)"
        )
        yield database
        await database.execute("DROP TABLE jobs")


@pytest.fixture
def queue(db):
    return TableQueue(db)


@pytest.fixture
def make(db, queue):
    """Schedulers of several processes, as far as the database can tell."""

    def make(reporter=None, **settings):
        return Scheduler(db, ScheduleConfig(**settings), targets=Targets(queue), reporter=reporter)

    return make


@pytest.fixture
def scheduler(make, now):
    return make()


@pytest.fixture
def callbacks(db, now):
    return Callbacks(db, ScheduleConfig(), Reporter())
