import ast
import importlib

import pytest
import surface

FILES = surface.public_files()
PACKAGES = [name for name, file in FILES.items() if file.name == "__init__.py"]


def test_the_public_surface_is_as_recorded():
    changes = surface.difference()
    assert not changes, (
        f"the public surface changed:\n{changes}\n\n"
        "If that is wanted, run `make surface` and say why in the commit and a changelog fragment."
    )


@pytest.mark.parametrize("name", FILES)
def test_every_name_in_all_exists_once(name):
    module = importlib.import_module(name)
    missing = [public for public in module.__all__ if not hasattr(module, public)]
    assert not missing
    assert sorted(set(module.__all__)) == sorted(module.__all__)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_lists_every_name_it_imports(name):
    package = importlib.import_module(name)
    tree = ast.parse(FILES[name].read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lexigram")
        for alias in node.names
    }
    assert imported <= set(package.__all__)


class Sample:
    limit = 3

    def __init__(self, size: int = 1) -> None:
        self.size = size

    async def grow(self, by: "int | None" = None) -> None: ...

    @property
    def area(self) -> int:
        return self.size


def test_a_class_is_described_by_its_public_members_with_signatures():
    assert list(surface.describe("Sample", Sample)) == [
        "class Sample",
        "def __init__(self, size: int = 1) -> None",
        "property area",
        "async def grow(self, by: int | None = None) -> None",
        "limit: int",
    ]


def test_a_changed_signature_shows_in_the_difference(tmp_path, monkeypatch):
    recorded = surface.snapshot()
    module = next(iter(recorded))
    name = next(iter(recorded[module]))
    recorded[module][name] = ["def other(x)"]
    old = tmp_path / "surface.json"
    old.write_text(surface.as_text(recorded), encoding="utf-8")
    monkeypatch.setattr(surface, "SNAPSHOT", old)
    assert '-   "def other(x)"' in surface.difference()
