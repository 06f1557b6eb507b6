"""``lexigram ingest`` where it cannot write: on a full disk that has room again, and in no folder."""

import json

import pytest
from tests.disks import run_on_small_disk
from tests.e2e.ai.conftest import HASHING
from tests.e2e.ai.test_ingest_processes import LEASES

from lexigram.cli import ExitCode

INGEST = """
import pathlib, shutil, subprocess, sys, time
from tests.disks import fill

folder = pathlib.Path(sys.argv[1])
(folder / "files").mkdir()
for number in range(20):
    text = "".join(f"## Part {part}\\n\\n" + f"File {number}, part {part}. " * 60 for part in range(5))
    (folder / "files" / f"{number}.md").write_text(f"# File {number}\\n\\n{text}")
command = [pathlib.Path(sys.executable).with_name("lexigram"), "ingest", "../files"]

for attempt in range(5):
    place = folder / str(attempt)
    place.mkdir()
    first = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while not any(place.glob(".lexigram/blobs/*/*")):
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.01)
    fill(folder / "ballast")
    was_full = any(b"no room left" in line for line in first.stderr)
    (folder / "ballast").unlink()
    first.communicate()  # it gave up, or went on as soon as there was room
    if was_full:
        break
    shutil.rmtree(place)  # it had ended before the disk was full
assert was_full
second = subprocess.run([*command, "--json"], cwd=place, stdout=subprocess.PIPE, check=True)
print(second.stdout.decode())
"""


@pytest.mark.promise
def test_an_ingestion_reports_a_full_disk_and_is_whole_when_there_is_room(tmp_path, monkeypatch):
    for name, value in {**HASHING, **LEASES}.items():
        monkeypatch.setenv(name, value)
    done = run_on_small_disk(INGEST, tmp_path, size="32m")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failed"] == 0
    assert found["indexed"] + found["unchanged"] == 20


def test_a_folder_that_cannot_be_made_is_named_with_its_reason(lex, tmp_path):
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "note.md").write_text("# Note")
    refused = lex("ingest", "note.md", "--data", tmp_path / "taken" / "data")
    assert refused.code == ExitCode.USAGE
    assert f"cannot write to {tmp_path}/taken/data: Not a directory" in refused.err
    assert "choose another folder with --data" in refused.err
