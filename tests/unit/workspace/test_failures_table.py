"""tests/failures.md: every place that calls code of others is described, and tested in every way."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TASK = re.compile(r" \(\*task\*[^)]*\)")
ROW = re.compile(
    r"^\| (?P<place>.+?) \| (?P<modules>.+?) \| `(?P<file>[^`:]+)::(?P<test>[^`]+)` \|$"
)
# What makes an Exception of whatever code of others raises, and keeps its caller alive.
BOUNDARY = {"call", "call_in_thread", "call_sync", "as_failure", "TaskSupervisor"}
# The relay hands messages to queues, which are the product's own or a driver of others.
OTHERS = {"queue.outbox.outbox"}


def described():
    lines = (ROOT / "docs/explanation/failures.md").read_text(encoding="utf-8").splitlines()
    start = lines.index("## Places")
    cells = [line.split(" | ")[0].removeprefix("| ") for line in lines[start:] if line[:2] == "| "]
    return {TASK.sub("", cell) for cell in cells[1:]}


def rows():
    text = (ROOT / "tests/failures.md").read_text(encoding="utf-8")
    return [found for line in text.splitlines() if (found := ROW.match(line))]


def users_of_the_boundary():
    found = set()
    for package in ROOT.glob("lexigram*/src/lexigram"):
        for file in package.rglob("*.py"):
            name = ".".join(file.relative_to(package).with_suffix("").parts)
            if name.startswith(("concurrency", "testing")):
                continue
            imports = (
                alias.name
                for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
                if isinstance(node, ast.ImportFrom)
                and (node.module or "").startswith("lexigram.concurrency")
                for alias in node.names
            )
            if BOUNDARY.intersection(imports):
                found.add(name)
    return found


def test_every_place_that_is_described_is_tested_and_every_tested_one_is_described():
    assert {row["place"] for row in rows()} == described()


def test_every_module_that_calls_code_of_others_belongs_to_a_place():
    named = {one for row in rows() for one in re.findall(r"`([^`]+)`", row["modules"])}
    assert named | OTHERS == users_of_the_boundary()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["test"])
def test_its_test_goes_through_the_ways_to_fail(row):
    tree = ast.parse((ROOT / row["file"]).read_text(encoding="utf-8"))
    [test] = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == row["test"]
    ]
    ways = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "tests.failures"
        for alias in node.names
        if alias.name.isupper()
    }
    made_of_them = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and any(way in ast.unparse(node.value) for way in ways)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    marks = [ast.unparse(mark) for mark in test.decorator_list]
    parameters = [mark for mark in marks if mark.startswith("pytest.mark.parametrize(")]
    assert any(way in mark for mark in parameters for way in ways | made_of_them)
