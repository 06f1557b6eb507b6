"""A process that was noted down is known again, and known to be gone."""

import json
import os
import subprocess
import sys

import pytest

from lexigram import clock
from lexigram.ai.workers.cli.ingestion import _describe_stats, _status
from lexigram.ai.workers.cli.ledger import Ledger, has_ended, this_process
from lexigram.contracts.workflow.durable import RunGroupStats, RunStatus


@pytest.fixture
def other():
    """Another process, as it names itself, and the process."""
    code = (
        "import json, sys; from lexigram.ai.workers.cli.ledger import this_process;"
        "print(json.dumps(this_process()), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def test_this_process_has_not_ended():
    assert this_process()["pid"] == os.getpid()
    assert not has_ended(this_process())


@pytest.mark.parametrize("is_known", [True, False])
def test_a_process_that_was_killed_has_ended_also_before_it_is_buried(other, is_known):
    noted = json.loads(other.stdout.readline())
    if not is_known:  # where there is no /proc
        noted["started"] = None
    assert not has_ended(noted)
    other.kill()
    if is_known:
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(noted)
    other.wait()
    assert has_ended(noted)


def test_a_number_that_another_process_has_by_now_is_not_the_same_process():
    assert has_ended({**this_process(), "started": "1"})


def test_of_another_machine_nothing_is_known():
    assert not has_ended({"host": "elsewhere.invalid", "pid": 1, "started": "1"})


@pytest.fixture
def mine():
    return this_process()


def group(status, **counts):
    statistics = {"completed": 1, "running": 0, "pending": 0, "failed": 0, **counts}
    total = sum(statistics.values())
    return RunGroupStats(
        total_runs=total, average_duration=None, group_status=RunStatus(status), **statistics
    )


@pytest.mark.anyio
async def test_an_ingestion_whose_process_has_ended_before_its_files_is_interrupted(mine):
    ledger = Ledger(roots=[], process=mine, unchanged=4)
    now = group("RUNNING", running=102, pending=3)
    told = await _describe_stats(ledger, now, 0)
    assert (told["status"], told["running"], told["pending"]) == ("RUNNING", 102, 3)
    ledger.process = {**mine, "started": "1"}
    told = await _describe_stats(ledger, now, 0)
    assert (told["status"], told["running"], told["pending"]) == ("INTERRUPTED", 0, 105)
    told = await _describe_stats(ledger, group("COMPLETED"), 0)
    assert (told["status"], told["completed"]) == ("COMPLETED", 5)


@pytest.mark.anyio
async def test_an_ingestion_on_another_machine_has_ended_when_it_is_silent(mine):
    ledger = Ledger(
        roots=[], process={**mine, "host": "elsewhere.invalid"}, heartbeat_at=clock.timestamp()
    )
    now = group("RUNNING", running=1)
    assert (await _describe_stats(ledger, now, 0))["status"] == "RUNNING"
    ledger.heartbeat_at -= 61
    assert (await _describe_stats(ledger, now, 0))["status"] == "INTERRUPTED"


@pytest.mark.parametrize(
    ("stats", "there", "failed", "status"),
    [
        (None, 3, 0, "COMPLETED"),
        (group("COMPLETED"), 3, 0, "COMPLETED"),
        (group("COMPLETED"), 3, 1, "PARTIAL"),
        (group("FAILED"), 675, 8, "PARTIAL"),
        (group("FAILED"), 0, 8, "FAILED"),
        (group("CANCELLED"), 3, 0, "CANCELLED"),
        (group("RUNNING"), 3, 1, "RUNNING"),
    ],
)
def test_the_status_of_an_ingestion_is_that_of_all_its_files(stats, there, failed, status):
    assert _status(stats, there, failed) == status
