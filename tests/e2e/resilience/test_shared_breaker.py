"""One circuit of several processes over a real Redis; some of them die."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.names import unique_name
from tests.processes import Popen
from tests.redis_keys import delete_keys

from lexigram.testing import wait_until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.chaos,
    pytest.mark.service("redis"),
    pytest.mark.timeout(300),
]

WORKER = Path(__file__).with_name("worker.py")
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
PROCESSES = 3 if not FULL else 5


class Worker:
    """A process with the breaker; ``await ask("fail")`` is its answer to that line."""

    def __init__(self, *arguments):
        self.process = Popen(
            [sys.executable, str(WORKER), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def ask(self, order):
        await self.tell(order)
        return await self.hear()

    async def tell(self, order):
        def write():
            self.process.stdin.write(f"{order}\n")
            self.process.stdin.flush()

        await anyio.to_thread.run_sync(write)

    async def hear(self):
        return json.loads(await anyio.to_thread.run_sync(self.process.stdout.readline))

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
async def start(services):
    """Starts processes that share one circuit, and removes its keys."""
    url, prefix = f"redis://{services['redis'].address}/0", unique_name()
    started = []

    async def run(count, **settings):
        fresh = [Worker(url, prefix, json.dumps(settings)) for _ in range(count)]
        started.extend(fresh)
        for worker in fresh:
            assert await worker.hear() == {"ready": True}
        return fresh

    yield run
    for worker in started:
        worker.end()
    await delete_keys(url, f"{prefix}:*")


async def all_asked(workers, order):
    answers = [None] * len(workers)

    async def ask(at):
        answers[at] = await workers[at].ask(order)

    async with anyio.create_task_group() as tasks:
        for at in range(len(workers)):
            tasks.start_soon(ask, at)
    return answers


async def test_failures_in_all_processes_count_together_and_open_the_circuit_for_all(start):
    workers = await start(PROCESSES, failure_threshold=PROCESSES, recovery_timeout=600)
    for worker in workers[:-1]:
        assert await worker.ask("fail") == {"made": "own error", "state": "closed"}
    assert await workers[-1].ask("fail") == {"made": "own error", "state": "open"}
    for worker in [*workers, *await start(1, failure_threshold=PROCESSES, recovery_timeout=600)]:
        assert await worker.ask("answer") == {"made": "refused", "state": "open"}


async def test_fifty_calls_at_once_in_each_process_see_their_own_error_or_a_refusal(start):
    threshold = 5
    workers = await start(PROCESSES, failure_threshold=threshold, recovery_timeout=600)
    answers = await all_asked(workers, "many 50")
    assert [answer["state"] for answer in answers] == ["open"] * PROCESSES
    outcomes = [answer["outcomes"] for answer in answers]
    assert all(sum(one.values()) == 50 for one in outcomes)
    assert {kind for one in outcomes for kind in one} <= {"own error", "refused"}
    assert sum(one.get("own error", 0) for one in outcomes) >= threshold


async def test_processes_share_the_probes_and_get_those_of_a_killed_prober_back(start):
    probes = 2
    settings = {
        "failure_threshold": 1,
        "recovery_timeout": 0,
        "half_open_max": probes,
        "success_threshold": probes,
        "timeout": 15.0,  # and one second: how long the place of a dead prober is kept
    }
    workers = await start(PROCESSES, **settings)
    assert (await workers[0].ask("fail"))["state"] == "open"
    probers, others = workers[:probes], workers[probes:]
    for prober in probers:
        assert await prober.ask("hang") == {"made": "hang"}
    for other in others:
        assert await other.ask("answer") == {"made": "refused", "state": "half_open"}
    for prober in probers:
        prober.process.send_signal(signal.SIGKILL)

    async def answered():
        return (await others[0].ask("answer"))["made"] == "answered"

    for _ in range(probes):
        await wait_until(answered, timeout=60)
    assert await others[0].ask("answer") == {"made": "answered", "state": "closed"}
