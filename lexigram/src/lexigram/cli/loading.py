"""Find the application that MODULE:APP names, and say clearly why it cannot be found."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lexigram.cli.errors import TargetError
from lexigram.concurrency import CallAbortedError, call_sync
from lexigram.contracts.core.errors import LexigramError

if TYPE_CHECKING:
    from lexigram.app import Application

_EXAMPLE = "MODULE:APP, such as shop.app:app"


def load_application(target: str | None) -> Application:
    """The application at ``target``, or the one pyproject.toml names; not started.

    Modules are looked for in the current folder and its ``src`` too. What stands there may be
    an Application or something that makes one when called without arguments.
    """
    target = target or default_target()
    if target is None:
        raise TargetError(
            "no application is named",
            hint=f"give {_EXAMPLE}, or write it into pyproject.toml:\n"
            '    [tool.lexigram]\n    app = "shop.app:app"',
        )
    name, colon, attribute = target.partition(":")
    if not colon:
        attribute = ""
    if not name:
        raise TargetError(f"{target!r} names no module", hint=f"give {_EXAMPLE}")
    module = _import(name)
    if not attribute:
        raise TargetError(f"{target!r} names no application", hint=_which(module))
    return _application(module, attribute, target)


def default_target(folder: Path | None = None) -> str | None:
    """``[tool.lexigram] app`` of pyproject.toml in the folder; None where there is none."""
    import tomllib

    file = (folder or Path()) / "pyproject.toml"
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise TargetError(f"{file} cannot be read: {error}") from error
    except RecursionError:
        raise TargetError(f"{file} cannot be read: it is nested too deeply") from None
    target: Any = content
    for name in ("tool", "lexigram", "app"):
        if target is not None and not isinstance(target, dict):
            raise TargetError(
                f"[tool.lexigram] in {file} is no table",
                hint='write it as  [tool.lexigram]\n    app = "shop.app:app"',
            )
        target = None if target is None else target.get(name)
    if target is not None and not isinstance(target, str):
        raise TargetError(f"[tool.lexigram] app in {file} is {target!r}", hint=f"write {_EXAMPLE}")
    return target


def add_import_folders() -> None:
    """Make modules of the current folder importable, as ``python -m`` does, and those in src."""
    for folder in (Path.cwd() / "src", Path.cwd()):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def _import(name: str) -> ModuleType:
    add_import_folders()
    try:
        return call_sync(import_module, name)
    except CallAbortedError as error:
        raise TargetError(
            f"importing {name} failed: {error.details['raised']}: {error.cause}",
            hint='what ends the process belongs under  if __name__ == "__main__":',
        ) from error
    except LexigramError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise _no_module(name) from None
        raise TargetError(
            f"importing {name} failed: there is no module {error.name}",
            hint=f"install the package that brings {error.name}, or correct the import",
        ) from error
    except Exception as error:
        raise TargetError(
            f"importing {name} failed: {type(error).__name__}: {error}",
            hint="the module itself raised this; --debug shows where",
        ) from error


def _no_module(name: str) -> TargetError:
    there = sorted(set(_modules_here()))
    near = get_close_matches(name.partition(".")[0], there, n=1)
    here = f"did you mean {near[0]}?" if near else f"modules here: {', '.join(there) or 'none'}"
    return TargetError(
        f"there is no module {name}",
        hint=f"{here} (looked in {Path.cwd()} and its src folder)",
    )


def _modules_here() -> Iterator[str]:
    for folder in (Path(), Path("src")):
        yield from (file.stem for file in folder.glob("*.py") if file.stem.isidentifier())
        yield from (file.parent.name for file in folder.glob("*/__init__.py"))


def _application(module: ModuleType, attribute: str, target: str) -> Application:
    from lexigram.app import Application

    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, _MISSING)
        if found is _MISSING:
            raise TargetError(f"{module.__name__} has no {attribute}", hint=_which(module))
    if isinstance(found, Application):
        return found
    if not callable(found) or not _without_arguments(found):
        raise TargetError(
            f"{target} is {_kind(found)}, neither an Application nor a function without "
            "arguments that returns one",
            hint=_which(module),
        )
    made = call_sync(found)
    if isinstance(made, Application):
        return made
    if inspect.iscoroutine(made):
        made.close()
        raise TargetError(f"{target} is an async function", hint="make it a plain function")
    raise TargetError(f"{target}() returned {_kind(made)}, not an Application", hint=_which(module))


_MISSING = object()


def _which(module: ModuleType) -> str:
    """What the module has to offer, as a hint."""
    names = sorted(name for name, value in vars(module).items() if _looks_right(value, module))
    if names:
        return "did you mean " + " or ".join(f"{module.__name__}:{name}" for name in names) + "?"
    return f'{module.__name__} has no application: write  app = Application("name")  there'


def _looks_right(value: Any, module: ModuleType) -> bool:
    from lexigram.app import Application

    if isinstance(value, Application):
        return True
    if not inspect.isfunction(value) or value.__module__ != module.__name__:
        return False
    returns = value.__annotations__.get("return")
    return returns is Application or str(returns).rpartition(".")[2] == "Application"


def _without_arguments(found: Callable[..., Any]) -> bool:
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True


def _kind(value: Any) -> str:
    if inspect.isfunction(value):
        return "a function with arguments"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"an object of type {type(value).__name__}"
