"""examples/saga: a trip that is booked, one that is given back, one that survives a crash."""

import sys
from pathlib import Path

from tests import processes

ROOT = Path(__file__).parents[3]


def run(folder, *arguments):
    return processes.run(
        [sys.executable, "-m", "examples.saga", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_trips_are_booked_given_back_and_recovered(tmp_path):
    booked = run(tmp_path, "book", "rome")
    assert booked.stdout.splitlines() == [
        *["flight ROM-12A", "hotel in rome", "car in rome"],
        "trip-rome completed: Ok(None)",
    ], booked.stderr
    given_back = run(tmp_path, "book", "atlantis").stdout.splitlines()
    assert given_back[2:4] == ["cancel hotel in atlantis", "cancel flight ATL-12A"]
    assert "no car is left" in given_back[4]
    died = run(tmp_path, "crash", "oslo")
    assert died.returncode < 0
    recovered = run(tmp_path, "recover")
    assert recovered.stdout.splitlines() == [
        *["hotel in oslo", "car in oslo"],
        "trip-oslo completed: Ok(None)",
    ], recovered.stderr
