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


def test_the_first_start_imports_no_library_that_it_does_not_use(tmp_path):
    code = (
        "import sys, anyio; from lexigram.app import Application\n"
        "async def main():\n"
        "    async with Application('empty'): pass\n"
        "anyio.run(main)\n"
        "print(*(m for m in ('pydantic', 'pydantic_settings', 'cattrs', 'sqlalchemy', 'typer', "
        "'loguru', 'opendal', 'yaml', 'difflib') if m in sys.modules))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    ).stdout
    assert loaded.split() == []


def test_what_the_user_imported_before_stays_visible_to_dependency_injector(tmp_path):
    code = (
        "import pydantic; from lexigram.di import Container; Container()\n"
        "import pydantic.fields, sys; print('pydantic' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.split() == ["True"]
