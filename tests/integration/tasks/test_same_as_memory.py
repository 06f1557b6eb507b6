"""Whatever is done to them, the queue in memory and the queue in SQL are in the same state."""

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lexigram import clock
from lexigram.contracts.infra.tasks import EndKind, JobEnd
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade
from lexigram.tasks import InMemoryTaskQueue, JobDeadLetters, SqlTaskQueue
from lexigram.testing.fakes import FakeClock

NAMES = [f"job-{number}" for number in range(6)]

enqueue = st.tuples(
    st.just("enqueue"),
    st.sampled_from(NAMES),
    st.fixed_dictionaries(
        {},
        optional={
            "priority": st.integers(-1, 1),
            "delay": st.sampled_from([0, 10]),
            "queue": st.sampled_from(["default", "other"]),
            "unique_key": st.sampled_from(["u", "v"]),
            "idempotency_key": st.sampled_from(["i", "j"]),
            "depends_on": st.lists(st.sampled_from(NAMES), max_size=2),
            "on_dependency_failure": st.sampled_from(["cancel", "run"]),
            "max_deliveries": st.integers(1, 2),
        },
    ),
)
by_name = st.tuples(
    st.sampled_from(["cancel", "retry", "delete", "bury", "dead retry", "dead purge"]),
    st.sampled_from(NAMES),
)
operations = st.lists(
    st.one_of(
        enqueue,
        by_name,
        st.tuples(st.just("claim"), st.integers(1, 3), st.sampled_from([(), ("other",)])),
        st.tuples(st.just("finish"), st.integers(0, 5), st.sampled_from(list(EndKind))),
        st.tuples(st.just("advance"), st.sampled_from([5, 20, 40])),
        st.tuples(st.sampled_from(["tend", "purge", "clear"])),
    ),
    max_size=25,
)


class Subject:
    """One of the two, with what it handed out."""

    def __init__(self, queue):
        self.queue = queue
        self.letters = JobDeadLetters(queue)
        self.claims = []

    async def do(self, operation):
        kind, *rest = operation
        if kind == "enqueue":
            answer = await self.queue.enqueue({"name": "work", "id": rest[0], **rest[1]})
            return answer.value if answer.is_ok() else type(answer.error)
        if kind == "claim":
            claims = await self.queue.claim("me", rest[0], rest[1], lease=30.0)
            self.claims += claims
            return [claim.job.id for claim in claims]
        if kind == "finish":
            if not self.claims:
                return None
            claim = self.claims[rest[0] % len(self.claims)]
            end = JobEnd(claim=claim, kind=rest[1], value=1, error="e", reason="r", delay=7.0)
            return list(await self.queue.finish([end]))
        if kind == "bury":
            return await self.letters.add(rest[0], {"name": "work"}, "by hand")
        calls = {
            "cancel": self.queue.cancel,
            "retry": self.queue.retry_job,
            "delete": self.queue.delete_job,
            "dead retry": self.letters.retry,
            "dead purge": self.letters.purge,
            "tend": self.queue.tend,
            "clear": self.queue.clear,
            "purge": lambda: self.queue.purge(15),
        }
        return await calls[kind](*rest)

    async def state(self):
        jobs = await self.queue.list_jobs(limit=100)
        letters = [letter.message_id for letter in await self.letters.list_failed()]
        return {job.id: job for job in jobs}, letters


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("same") / "jobs.db"

    async def make():
        async with Database(f"sqlite:///{path}") as database:
            await upgrade(database)

    anyio.run(make)
    return f"sqlite:///{path}"


@given(operations=operations)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_leaves_both_in_the_same_state(file, operations):
    async def play():
        async with Database(file) as database:
            for table in ("jobs", "job_edges"):
                await database.execute(f"DELETE FROM lexigram_{table}")
            memory, stored = Subject(InMemoryTaskQueue()), Subject(SqlTaskQueue(database))
            with clock.use(FakeClock()) as time:
                for operation in operations:
                    if operation[0] == "advance":
                        time.advance(operation[1])
                        continue
                    time.advance(0.001)
                    first, second = await memory.do(operation), await stored.do(operation)
                    if isinstance(first, float):
                        first, second = round(first, 3), round(second, 3)
                    assert first == second, operation
                    assert await memory.state() == await stored.state(), operation

    anyio.run(play)
