"""What a job may hold, and what it may be looked up by: in memory and on both databases."""

import math

import pytest

from lexigram.contracts.core.result import Err
from lexigram.contracts.infra.tasks import JobRefusedError, JobStatus
from lexigram.contracts.infra.tasks.types import EndKind, JobEnd
from lexigram.sql import Database
from lexigram.tasks.progress import MemoryProgress, ProgressTracker
from lexigram.tasks.queue import InMemoryTaskQueue, SqlTaskQueue

pytestmark = pytest.mark.anyio

TEXTS = {"NUL": "a\0b", "surrogate": "a\ud800", "long": "x" * 513, "empty": "", "number": 7}
UNSTORABLE = {
    "nan": ({"rows": [1, math.nan]}, "$.rows[1]"),
    "object": ([{"a": object()}], "$[0].a"),
    "surrogate": ("\ud800", "surrogates not allowed"),
}


@pytest.fixture(
    params=[
        "memory",
        "sqlite_url",
        pytest.param("postgres_url", marks=pytest.mark.service("postgresql")),
    ]
)
def url(request):
    return None if request.param == "memory" else request.getfixturevalue(request.param)


@pytest.fixture
async def queue(url):
    if url is None:
        yield InMemoryTaskQueue()
        return
    async with Database(url) as database:
        yield SqlTaskQueue(database)


async def claimed(queue):
    assert (await queue.enqueue({"name": "x"})).is_ok()
    [claim] = await queue.claim("holder", 1)
    return claim


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_text_that_no_store_takes_is_refused_by_name(queue, text):
    for field in ("name", "id", "queue", "unique_key", "idempotency_key", "correlation_id"):
        answer = await queue.enqueue({"name": "x", field: text})
        assert isinstance(answer, Err), field
        assert answer.error.details["field"] == field
    calls = {
        "job_id": [queue.get_job, queue.cancel, queue.get_result, queue.retry_job],
        "queue_name": [queue.count, queue.list_jobs],
    }
    for field, some in calls.items():
        for call in some:
            with pytest.raises(JobRefusedError, match=field):
                await call(text)


@pytest.mark.parametrize("number", [2**63, 2**200, 10**5000, -1, 1.5, True], ids=range(6))
async def test_a_limit_or_offset_beyond_64_bits_is_refused_by_name(queue, number):
    for field in ("limit", "offset"):
        with pytest.raises(JobRefusedError, match=field):
            await queue.list_jobs(**{field: number})
    assert await queue.list_jobs(limit=2**63 - 1, offset=2**62) == []


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 1e300])
async def test_an_age_that_is_no_time_is_refused_by_name(queue, seconds):
    with pytest.raises(JobRefusedError, match="older_than"):
        await queue.purge(seconds)


@pytest.mark.parametrize("kind", UNSTORABLE)
async def test_a_result_that_cannot_be_stored_fails_the_job_at_once_with_its_path(queue, kind):
    value, told = UNSTORABLE[kind]
    claim = await claimed(queue)
    await queue.finish([JobEnd(claim=claim, kind=EndKind.COMPLETED, value=value)])
    result = await queue.get_result(claim.job.id)
    assert (result.status, result.reason) == (JobStatus.FAILED, "aborted")
    assert told in result.error


async def test_an_error_with_characters_that_no_database_stores_is_stored_without_them(queue):
    claim = await claimed(queue)
    await queue.finish([JobEnd(claim=claim, kind=EndKind.FAILED, error="a \0 b \ud800")])
    assert (await queue.get_result(claim.job.id)).error == "a \ufffd b \ufffd"


async def test_progress_with_such_characters_is_reported_without_them():
    tracker = ProgressTracker(MemoryProgress())
    await tracker.update("job", 1, 2, "a \0 b \ud800")
    assert (await tracker.get("job")).message == "a \ufffd b \ufffd"
    for wrong in (math.nan, 1.5, 2**63, -1):
        with pytest.raises(JobRefusedError, match="current"):
            await tracker.update("job", wrong, 2)
    for text in TEXTS.values():
        with pytest.raises(JobRefusedError, match="task_id"):
            await tracker.update(text, 1, 2)
