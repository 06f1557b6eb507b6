"""examples/durable_graph: two workers, a parcel, a question."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes import Popen

ROOT = Path(__file__).parents[3]


@pytest.fixture
def example(tmp_path):
    started = []

    def run(*arguments):
        process = Popen(
            [sys.executable, "-m", "examples.durable_graph", *arguments],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_parcel_is_sent_after_the_answer(example):
    workers = [example("work"), example("work")]
    for worker in workers:
        assert worker.stdout.readline() == "works\n"
    asked, _ = example("send", "Ada").communicate(timeout=60)
    assert asked == "run 1: send a parcel for Ada of 300 g?\n"
    sent, _ = example("answer", "1", "yes").communicate(timeout=60)
    assert sent == "a parcel for Ada, 300 g, yes\n"
    for worker in workers:
        worker.kill()
    said = [line.split()[0] for worker in workers for line in worker.communicate()[0].splitlines()]
    assert sorted(said) == ["insure", "pack", "send", "weigh"]
