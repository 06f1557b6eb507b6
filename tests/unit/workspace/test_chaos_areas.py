"""tests/chaos.py: every fault test belongs to one area, and its evidence says how it was made."""

import ast
import re
import subprocess
from pathlib import Path

from tests import chaos

ROOT = Path(__file__).resolve().parents[3]


def test_every_file_with_fault_tests_is_in_one_area():
    marked = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "tests").rglob("test_*.py")
        if any(
            isinstance(node, ast.Attribute) and node.attr == "chaos"
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        )
    } - {Path(__file__).relative_to(ROOT).as_posix()}
    assert marked
    areas = {area: chaos.folders_of(area) for area in chaos.AREAS}
    for file in marked:
        of_file = [
            area
            for area, folders in areas.items()
            if any(file.startswith(f"{folder}/") for folder in folders)
        ]
        assert len(of_file) == 1, file


def test_every_evidence_can_be_made_again_and_names_commits_that_exist():
    files = sorted((ROOT / "docs" / "evidence").iterdir())
    assert files
    for file in files:
        assert (file.stem, file.suffix) in {(area, ".txt") for area in chaos.AREAS}, file
        commits = re.findall(r"^commit (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
        assert commits, file
        for commit in commits:
            subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, check=True)
