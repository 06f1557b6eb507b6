import sys
from pathlib import Path

from tests import processes

ROOT = Path(__file__).parents[3]


def test_the_example_fails_mends_and_ends():
    done = processes.run(
        [sys.executable, "-m", "examples.jobs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("dog: 30\nan album of cat, dog\n")
    assert "cat: 20\n" in done.stdout
    assert "dog: failed KeyError: 'dog'\n" in done.stdout
