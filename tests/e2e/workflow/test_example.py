"""examples/graph: a pause in one process, the answer in another."""

import sys
from pathlib import Path

from tests import processes

ROOT = Path(__file__).parents[3]


def run(folder, *arguments):
    done = processes.run(
        [sys.executable, "-m", "examples.graph", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_letter_is_approved_in_a_second_process(tmp_path):
    *ran, prompt, run_line = run(tmp_path, "start", "Ada")
    assert ran == ["write", "spelling", "tone"]
    assert "Dear Ada" in prompt
    answered = run(tmp_path, "answer", run_line.removeprefix("run "), "yes")
    assert answered[:2] == ["send", "Dear Ada, your tea has arrived. (yes)"]
    assert "    class n4 done" in answered


def test_a_customer_is_taken_in_by_the_pipeline(tmp_path):
    done = processes.run(
        [sys.executable, "-m", "examples.pipeline", "Ada", "premium"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["an adviser calls Ada", "mailed Ada, texted Ada"], (
        done.stderr
    )
