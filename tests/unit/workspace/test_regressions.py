"""tests/regressions.md: every known defect has a test, and every test named there exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| (?P<id>[a-z]+-\d+) \| .* \| `(?P<test>[^`]+)` \|$")

# The defects listed in the specification of the line before this one.
KNOWN = {f"core-{number}" for number in range(1, 11)} | {f"workflow-{n}" for n in range(1, 22)}

KNOWN |= {f"queue-{number}" for number in range(1, 17)}

# Of the ingester (seed 004).
KNOWN |= {f"ingester-{number}" for number in range(1, 25)}

# Of the AI workers (A1 to A13 in their specification).
KNOWN |= {f"ai-{number}" for number in range(1, 14)}


def rows():
    text = (ROOT / "tests" / "regressions.md").read_text(encoding="utf-8")
    return [(m["id"], m["test"]) for line in text.splitlines() if (m := ROW.match(line))]


def exists(node):
    path, _, name = node.partition("::")
    if not (ROOT / path).is_file():
        return False
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = {
        n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return name.partition("[")[0] in functions


def test_every_known_defect_has_a_regression_test():
    assert KNOWN - {defect for defect, _ in rows()} == set()


def test_every_test_named_in_the_table_exists():
    assert [node for _, node in rows() if not exists(node)] == []


def test_every_row_of_the_table_is_read():
    text = (ROOT / "tests" / "regressions.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.match(r"\| [a-z]+-\d", line)]
    assert len(lines) == len(rows())
