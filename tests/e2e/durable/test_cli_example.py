"""The example runs as its text says."""

import sys
from pathlib import Path

from tests import processes

ROOT = Path(__file__).parents[3]


def test_the_example_files_all_notes_and_one_at_the_second_attempt():
    done = processes.run(
        [sys.executable, "-m", "examples.durable"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("all notes are filed\nCOMPLETED 3 of 3\n")
    assert "home/note-2 2 COMPLETED ERROR COMPLETED\n" in done.stdout
