"""docs/compatibility.md tells the truth about what moved and what is not built."""

import importlib
import re
from pathlib import Path

import pytest
import surface

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"


def table(heading):
    """(left cell, right cell) of the first table below a heading."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines() if line[:1] == "|"]
    return [(row[0].strip(), row[1].strip()) for row in rows[2:]]


def names(cell):
    return re.findall(r"`([\w.]+)`", cell)


MOVED = [(name, names(right)[0]) for left, right in table("What moved") for name in names(left)]


@pytest.mark.parametrize(("name", "module"), MOVED)
def test_a_moved_name_is_where_the_page_says(name, module):
    assert hasattr(importlib.import_module(module), name.rpartition(".")[2])


def test_a_name_that_is_not_built_is_public_nowhere():
    public = {name for module in surface.public_modules() for name in module.__all__}
    unbuilt = {name for left, _ in table("Not built") for name in names(left)}
    assert unbuilt
    assert unbuilt & public == set()
