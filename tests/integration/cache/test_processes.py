"""Several processes that miss the same key at the same moment."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from redis.asyncio import Redis
from tests.names import unique_name
from tests.processes import Popen

from lexigram.testing import wait_until

WORKER = Path(__file__).with_name("worker.py")


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
        pytest.param("redis", marks=pytest.mark.service("redis")),
    ]
)
def url(request):
    names = {"sqlite": "sqlite_url", "postgresql": "own_schema", "redis": "redis_address"}
    return request.getfixturevalue(names[request.param])


@pytest.fixture
async def redis_address(tmp_path, services):
    address = f"redis://{services['redis'].address}/0"
    prefix = unique_name()
    yield f"{address}#{prefix}"
    async with Redis.from_url(address) as client:
        keys = [key async for key in client.scan_iter(match=f"{prefix}*", count=10_000)]
        if keys:
            await client.delete(*keys)


@pytest.fixture
def start(url, tmp_path):
    started = []

    def run(name, mode="load"):
        process = Popen(
            [sys.executable, str(WORKER), url, str(tmp_path), name, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def go(process):
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.mark.quick
async def test_the_callers_of_all_processes_run_one_loader(start, tmp_path):
    processes = [await anyio.to_thread.run_sync(start, name) for name in ("a", "b", "c")]
    for process in processes:
        go(process)
    answers = [await anyio.to_thread.run_sync(process.stdout.readline) for process in processes]
    (loader,) = await anyio.to_thread.run_sync(loads, tmp_path)
    assert answers == [f"{loader}\n"] * 3


@pytest.mark.promise
async def test_a_process_that_dies_while_it_loads_is_followed_by_another(start, tmp_path):
    hangs = await anyio.to_thread.run_sync(start, "a", "hang")
    waits = await anyio.to_thread.run_sync(start, "b")
    go(hangs)
    await wait_until(lambda: anyio.to_thread.run_sync(loads, tmp_path), timeout=60)
    go(waits)
    hangs.kill()
    assert await anyio.to_thread.run_sync(waits.stdout.readline) == "b\n"
    assert await anyio.to_thread.run_sync(loads, tmp_path) == ["a", "b"]


def loads(folder):
    """The names of the processes whose loaders ran, one for each run."""
    return sorted(path.name.split("-")[1] for path in folder.glob("load-*"))
