"""The public surface as text: every name in every ``__all__``, with its signature.

``python tools/surface.py`` shows what changed, ``--update`` writes the snapshot that
tests/surface compares with.
"""

import difflib
import enum
import functools
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOT = ROOT / "tests" / "surface" / "surface.json"


def main() -> int:
    if "--update" in sys.argv[1:]:
        SNAPSHOT.write_text(as_text(snapshot()), encoding="utf-8")
        print(f"wrote {SNAPSHOT.relative_to(ROOT)}")
        return 0
    changes = difference()
    print(changes or "the public surface is as recorded")
    return 1 if changes else 0


def difference() -> str:
    """What changed since the snapshot, as a diff; empty when nothing did."""
    recorded = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    found = as_text(snapshot()).splitlines()
    return "\n".join(difflib.unified_diff(recorded, found, "recorded", "found", lineterm="", n=2))


def snapshot() -> dict[str, dict[str, list[str]]]:
    """Module -> public name -> lines that describe it."""
    return {
        module.__name__: {
            name: list(describe(name, getattr(module, name))) for name in sorted(module.__all__)
        }
        for module in public_modules()
    }


def as_text(surface: dict[str, dict[str, list[str]]]) -> str:
    return json.dumps(surface, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def public_modules() -> Iterator[ModuleType]:
    """Every module of the five distributions that carries ``__all__``."""
    return map(importlib.import_module, public_files())


def public_files() -> dict[str, Path]:
    """The names of these modules with their files; to list them imports none."""
    files = {}
    for folder in sorted(ROOT.glob("lexigram*/src")):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            names = parts[:-1] if parts[-1] == "__init__" else parts
            private = any(name.startswith("_") for name in names)
            if not private and "__all__" in path.read_text(encoding="utf-8"):
                files[".".join(names)] = path
    return files


def describe(name: str, value: Any) -> Iterator[str]:
    """The lines of one name: what it is, and for a class its bases and public members."""
    if isinstance(value, ModuleType):
        yield f"module {value.__name__}"
    elif get_origin(value) is not None:  # its signature would be different in each Python
        yield f"alias {name}"
    elif inspect.isclass(value):
        yield from _class(name, value)
    elif callable(value):
        yield _function(name, value)
    else:
        yield f"{name}: {type(value).__name__}"


def _class(name: str, value: type) -> Iterator[str]:
    bases = ", ".join(base.__qualname__ for base in value.__bases__ if base is not object)
    yield f"class {name}({bases})" if bases else f"class {name}"
    if issubclass(value, enum.Enum):
        yield from (f"{member.name} = {member.value!r}" for member in value)
        return
    for member, found in sorted(vars(value).items()):
        if _shown(value, member):
            yield _member(member, found)


def _shown(owner: type, member: str) -> bool:
    if member == "__init__":  # a protocol gets one from typing, different in each Python
        return not getattr(owner, "_is_protocol", False)
    return not member.startswith("_")


def _member(name: str, value: Any) -> str:
    if isinstance(value, property | functools.cached_property):
        return f"property {name}"
    if isinstance(value, classmethod | staticmethod):
        return f"{type(value).__name__} {_function(name, value.__func__)}"
    if inspect.isfunction(value):
        return _function(name, value)
    return f"{name}: {'class' if inspect.isclass(value) else type(value).__name__}"


def _function(name: str, value: Callable[..., Any]) -> str:
    prefix = "async def" if inspect.iscoroutinefunction(value) else "def"
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):  # a built-in without a signature
        signature = "(...)"
    # An address in a default, and the quotes inspect puts around postponed annotations.
    return re.sub(r" at 0x[0-9a-f]+", "", f"{prefix} {name}{signature}").replace("'", "")


if __name__ == "__main__":
    sys.exit(main())
