"""Every store of dead letters keeps, changes, finds and counts them alike."""

import anyio
import pytest
from attrs import evolve

from lexigram.ai.workers.dlq.dead_letter import (
    DeadLetterState,
    Failure,
    RetryRule,
    mark_retried,
    record_failure,
)
from lexigram.ai.workers.dlq.store import MemoryDeadLetterStore
from lexigram.ai.workers.dlq.store_sql import SqlDeadLetterStore
from lexigram.ai.workers.types import FailureCategory
from lexigram.sql import Database

RULE = RetryRule(max_retries=2, base=60.0)


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def place(request):
    kind = request.param
    return kind, None if kind == "memory" else request.getfixturevalue(f"{kind}_url")


@pytest.fixture
async def store(place):
    _, url = place
    if url is None:
        yield MemoryDeadLetterStore()
        return
    async with Database(url) as database:
        yield SqlDeadLetterStore(database)


def failure(number=1, at=1000.0, category=FailureCategory.UNKNOWN, source="jobs", error="boom"):
    return Failure(
        source=source,
        id=str(number),
        payload={"name": "mail", "kwargs": {"to": "ö"}},
        error=error,
        category=category,
        failed_at=at,
        notes={"topic": "orders"},
    )


async def keep(store, failure_):
    return await store.change(
        failure_.source, failure_.id, lambda old: record_failure(old, failure_, RULE)
    )


async def test_a_dead_letter_is_read_as_it_was_stored(store):
    await keep(store, failure(error="böse\n\x00"))
    [dead_letter] = await store.find()
    assert dead_letter.last_error.startswith("böse\n")
    assert dead_letter.payload == {"name": "mail", "kwargs": {"to": "ö"}}
    assert dead_letter.notes == {"topic": "orders"}
    assert (dead_letter.failure_count, dead_letter.last_failure, dead_letter.next_retry) == (
        1,
        1000.0,
        1060.0,
    )
    assert (dead_letter.state, dead_letter.notified) == (DeadLetterState.WAITING, False)


async def test_the_same_failure_is_no_news_and_a_later_one_is_counted(store):
    first = await keep(store, failure())
    assert await keep(store, failure()) == first
    again = await keep(store, failure(at=2000.0))
    assert (again.failure_count, again.first_failure, again.last_failure) == (2, 1000.0, 2000.0)


async def test_a_change_to_nothing_forgets_and_of_nothing_does_nothing(store):
    await keep(store, failure())
    assert await store.change("jobs", "1", lambda old: None) is None
    assert await store.change("jobs", "1", lambda old: old) is None
    assert await store.find() == []


async def test_dead_letters_are_found_by_id_source_state_and_category_latest_first(store):
    for number in range(5):
        await keep(store, failure(number, at=1000.0 + number))
    await keep(store, failure(1, at=5000.0, source="bus"))
    await keep(store, failure(9, category=FailureCategory.PERMANENT))
    await store.change("jobs", "4", lambda old: mark_retried(old, 3000.0))
    ids = [(each.source, each.id) for each in await store.find()]
    assert ids[:2] == [("bus", "1"), ("jobs", "4")]
    assert {each.source for each in await store.find(dead_letter_id="1")} == {"bus", "jobs"}
    assert [each.id for each in await store.find(source="bus")] == ["1"]
    assert [each.id for each in await store.find(states=(DeadLetterState.RETRYING,))] == ["4"]
    assert [each.id for each in await store.find(category=FailureCategory.PERMANENT)] == ["9"]
    assert [each.id for each in await store.find(limit=2, offset=1)] == ["4", "3"]


async def test_due_ones_leave_out_those_that_are_too_early_final_or_under_way(store):
    for number in range(5):
        await keep(store, failure(number, at=1000.0 + number))
    await keep(store, failure(8, category=FailureCategory.INVALID_INPUT))
    await store.change("jobs", "2", lambda old: mark_retried(old, 3000.0))
    await store.change("jobs", "3", lambda old: evolve(old, retry_count=2))
    assert {each.id for each in await store.find(due_before=1062.5)} == {"0", "1"}


async def test_unnotified_ones_are_final_and_not_notified(store):
    await keep(store, failure(1))
    await keep(store, failure(2, category=FailureCategory.PERMANENT))
    await keep(store, failure(3, category=FailureCategory.PERMANENT))
    await store.change("jobs", "1", lambda old: evolve(old, retry_count=2))
    await store.change("jobs", "3", lambda old: evolve(old, notified=True))
    assert {each.id for each in await store.find(unnotified=True)} == {"1", "2"}


async def test_of_many_who_want_one_change_each_sees_the_one_before(store):
    await keep(store, failure())

    async def once_more():
        await store.change(
            "jobs", "1", lambda old: evolve(old, failure_count=old.failure_count + 1)
        )

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(once_more)
    [dead_letter] = await store.find()
    assert dead_letter.failure_count == 21


async def test_of_concurrent_first_failures_one_creates_the_dead_letter(store):
    made = []

    def change(old):
        if old is not None:
            return old
        made.append(1)
        return record_failure(None, failure(), RULE)

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(store.change, "jobs", "1", change)
    assert len(await store.find()) == 1


async def test_counts_and_sums(store):
    await keep(store, failure(1))
    await keep(store, failure(2, category=FailureCategory.PERMANENT))
    await store.increment("retried")
    await store.increment("retried", 2)
    assert await store.counts() == {("unknown", "waiting"): 1, ("permanent", "waiting"): 1}
    assert await store.statistics() == {"retried": 3}
