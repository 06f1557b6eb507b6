import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import lexigram.contracts
import lexigram.contracts.core

PACKAGES = ["lexigram.contracts"] + [
    found.name
    for found in pkgutil.walk_packages(lexigram.contracts.__path__, "lexigram.contracts.")
    if found.ispkg
]
LAZY = [lexigram.contracts, lexigram.contracts.core]


def defined_under(package):
    """Public classes of the modules directly inside the package."""
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if found.ispkg or found.name.rpartition(".")[2].startswith("_"):
            continue
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if inspect.isclass(value) and value.__module__ == found.name and name[0] != "_":
                yield name


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_exist_and_come_from_contracts(name):
    package = importlib.import_module(name)
    for public in package.__all__:
        origin = getattr(getattr(package, public), "__module__", "")
        # a union of our classes and a set of our enum: values, which know no module
        assert origin.startswith("lexigram.contracts") or public in {
            *("Result", "ScheduleTarget", "CORE_CAPABILITIES"),
        }


@pytest.mark.parametrize("name", PACKAGES[1:])
def test_all_lists_every_class_defined_in_the_package(name):
    package = importlib.import_module(name)
    assert set(defined_under(package)) <= set(package.__all__)


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_what_type_checkers_see_is_what_loads_at_run_time(package):
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (branch,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        (node.module, alias.name)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name for _, name in seen} == set(package.__all__) == set(dir(package))
    for home, name in seen:
        assert getattr(package, name) is getattr(importlib.import_module(home), name)


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_an_unknown_name_is_an_ordinary_attribute_error(package):
    message = f"module '{package.__name__}' has no attribute 'Nonsense'"
    with pytest.raises(AttributeError, match=message):
        package.Nonsense


def test_a_lazy_name_is_kept_after_its_first_use():
    lexigram.contracts.BusMessage
    assert "BusMessage" in vars(lexigram.contracts)
