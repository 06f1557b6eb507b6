"""What code written for the 0.1 line imports can still be imported from the same place."""

import importlib
from pathlib import Path

import pytest

LINES = Path(__file__).with_name("import_paths.txt").read_text().splitlines()


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.partition(":")[0])
def test_names_users_import_are_where_they_were(line):
    path, _, names = line.partition(": ")
    module = importlib.import_module(path)
    for name in names.split(", "):
        if not hasattr(module, name):  # a submodule counts as a name of its package
            importlib.import_module(f"{path}.{name}")
