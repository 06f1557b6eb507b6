"""Jobs over a live broker while the processes that do them are killed: none lost, none twice."""

import json
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import nats
import pytest
from tests.e2e.queue.tasks.process import driver_of, queue_of
from tests.integration.queue.rabbitmq_place import clear, own_vhost
from tests.names import unique_name
from tests.processes import Popen
from tests.redis_keys import delete_keys

from lexigram.contracts.infra.tasks import JobStatus
from lexigram.testing import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
JOBS, KILLS = (5_000, 30) if FULL else (150, 2)
AT_ONCE = 10  # jobs of one worker, which a kill may interrupt
GUARD = 600.0
PROCESS = Path(__file__).with_name("process.py")


@pytest.fixture(autouse=True)
def this_test_may_block(blocking_calls_fail):
    """It starts processes and reads their output; the library is watched elsewhere."""
    blocking_calls_fail.deactivate()


@pytest.fixture(
    params=[
        pytest.param("redis", marks=pytest.mark.service("redis")),
        pytest.param(
            "rabbitmq", marks=[pytest.mark.service("rabbitmq"), pytest.mark.service("postgresql")]
        ),
        pytest.param("nats", marks=[pytest.mark.service("nats"), pytest.mark.service("redis")]),
    ]
)
def kind(request):
    # Made here: it needs an event loop of its own.
    if request.param == "rabbitmq":
        request.getfixturevalue("postgres_url")
    return request.param


@pytest.fixture
async def place(kind, tmp_path, services, request):
    """Where broker and state are: names of this test alone."""
    made = {"kind": kind, "prefix": unique_name(), "log": str(tmp_path / "runs")}
    redis = f"redis://{services['redis'].address}/0"
    if kind == "redis":
        yield {**made, "url": redis, "redis": redis}
        await _clear_redis(redis, made["prefix"])
    elif kind == "nats":
        url = f"nats://{services['nats'].address}"
        yield {**made, "url": url, "redis": redis}
        await _clear_redis(redis, made["prefix"])
        client = await nats.connect(url)
        for name in ("", "-records", "-dead"):
            await client.request(f"$JS.API.STREAM.DELETE.{made['prefix']}{name}")
        await client.close()
    else:
        database = request.getfixturevalue("postgres_url")
        with own_vhost(services["rabbitmq"]) as url:
            yield {**made, "url": url, "database": database}
            driver = driver_of({**made, "url": url})
            await driver.connect()
            await clear(driver)


@pytest.fixture
async def start(place):
    running = []

    async def start():
        process = Popen([sys.executable, str(PROCESS), json.dumps(place)], stdout=subprocess.PIPE)
        running.append(process)
        assert await anyio.to_thread.run_sync(process.stdout.readline) == b"ready\n"
        return process

    yield start
    for process in running:
        await killed(process)


async def killed(process):
    process.send_signal(signal.SIGKILL)
    await anyio.to_thread.run_sync(process.wait)
    process.stdout.close()


def runs(place):
    return Path(place["log"]).read_text().split()


async def test_no_job_is_lost_and_none_is_done_again_after_it_succeeded(place, start):
    async with AsyncExitStack() as stack:
        queue = await queue_of(place, stack)
        failures = {f"job-{n}": (0, 0, 0, 1, 9)[n % 5] for n in range(JOBS)}
        tasks = [
            {
                "id": name,
                "name": "square",
                "kwargs": {"number": n, "failures": failures[name]},
                "max_retries": 2,
                "max_deliveries": 1000,
            }
            for n, name in enumerate(failures)
        ]
        workers = [await start(), await start()]
        for task in tasks[: JOBS // 2]:
            (await queue.enqueue(task)).unwrap()
        assert all(answer.is_ok() for answer in await queue.enqueue_many(tasks[JOBS // 2 :]))

        async def ended():
            done = [await queue.count("default", s) for s in JobStatus if s.is_final]
            return sum(done)

        for kill in range(KILLS):
            wanted = JOBS * (kill + 1) // (KILLS + 2)
            await wait_until(lambda wanted=wanted: _reached(ended, wanted), timeout=GUARD)
            await killed(workers.pop(0))
            workers.append(await start())
        await wait_until(lambda: _reached(ended, JOBS), timeout=GUARD)

        for number, (name, failed) in enumerate(failures.items()):
            result = await queue.get_result(name)
            if failed > 2:
                assert (result.status, result.reason) == (JobStatus.FAILED, "exhausted")
            else:
                assert (result.status, result.value) == (JobStatus.COMPLETED, number * number)
        before = runs(place)
        attempts = sum(min(failed, 2) + 1 for failed in failures.values())
        assert set(before) == set(failures)
        assert attempts <= len(before) <= attempts + KILLS * AT_ONCE

        # Whatever the broker still delivers, what has ended is not begun again.
        more = [
            {"id": f"more-{n}", "name": "square", "kwargs": {"number": 2, "failures": 0}}
            for n in range(20)
        ]
        for task in more:
            (await queue.enqueue(task)).unwrap()
        for task in more:
            assert (await queue.wait(task["id"], GUARD)).value == 4
        assert set(runs(place)[len(before) :]) == {task["id"] for task in more}


INNOCENTS = 50


async def test_a_job_that_kills_its_workers_takes_no_other_along(place, start):
    """All are claimed together, and many run beside it when it begins."""
    async with AsyncExitStack() as stack:
        queue = await queue_of(place, stack)
        tasks = [
            {"name": "square", "kwargs": {"number": number, "failures": 0}, "max_deliveries": 5}
            for number in range(INNOCENTS)
        ]
        tasks.insert(5, {"name": "deadly", "max_deliveries": 5})
        ids = [answer.unwrap() for answer in await queue.enqueue_many(tasks)]
        poison = ids.pop(5)
        deaths, process = 0, await start()

        async def all_ended():
            nonlocal deaths, process
            await queue.tend()
            if process.poll() is not None:
                deaths, process = deaths + 1, await start()
            found = [await queue.get_job(one) for one in (poison, *ids)]
            return all(one.status.is_final for one in found)

        await wait_until(all_ended, timeout=GUARD)
        results = [await queue.get_result(one) for one in ids]
        assert [one.value for one in results] == [number**2 for number in range(INNOCENTS)]
        found = await queue.get_job(poison)
        assert (found.status, found.reason) == (JobStatus.FAILED, "poison")
        assert 1 <= deaths <= found.lost_count == 5  # a lease may end on a busy machine


async def _clear_redis(url, prefix):
    await delete_keys(url, f"{prefix}*")


async def _reached(ended, wanted):
    return await ended() >= wanted
