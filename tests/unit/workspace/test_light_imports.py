import subprocess
import sys

import pytest

HEAVY = (
    *("dependency_injector", "cattrs", "orjson", "loguru", "typer", "click", "rich", "yaml"),
    *("pydantic", "sqlalchemy", "fastapi"),
)


@pytest.mark.parametrize(
    "module",
    [
        "lexigram.app",
        "lexigram.di",
        "lexigram.result",
        "lexigram.errors",
        "lexigram.contracts.core",
    ],
)
def test_importing_the_core_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert loaded.split() == []


def test_contracts_load_only_the_standard_library():
    code = (
        "import sys; before = set(sys.modules)\n"
        "import lexigram.contracts, pkgutil, importlib\n"
        "walk = pkgutil.walk_packages(lexigram.contracts.__path__, 'lexigram.contracts.')\n"
        "for found in walk: importlib.import_module(found.name)\n"
        "tops = {m.partition('.')[0] for m in set(sys.modules) - before}\n"
        "print(*sorted(tops - sys.stdlib_module_names))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert loaded.split() == ["lexigram"]
