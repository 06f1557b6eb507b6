"""The example of the repository."""

import sys
from pathlib import Path

from tests import processes

ROOT = Path(__file__).resolve().parents[3]


def test_the_example_collects_and_reports():
    done = processes.run(
        [sys.executable, "-m", "examples.schedule"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    lines = done.stdout.splitlines()
    assert [line.partition(" for ")[0] for line in lines[:3]] == ["collected"] * 3
    assert any(line.startswith("the next report is due at 0") for line in lines)
    assert any(line.endswith(" paid") for line in lines)  # before or after that line
