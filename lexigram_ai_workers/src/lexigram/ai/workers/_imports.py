"""Import a library without a package that it imports and that is not used here."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock, get_ident
from types import ModuleType
from typing import Any


def import_without(name: str, unused: str) -> ModuleType:
    """Import a module; the ``__init__`` of the package ``unused`` runs when it is first used.

    Submodules of the package that the library imports are imported. After that, the first name
    or submodule that anybody takes from the package runs its ``__init__``. A package that is
    imported already stays as it is. Where a release of the library cannot be imported so,
    everything is imported as usual, which is only slower.
    """
    finder = _DeferringFinder(unused)
    sys.meta_path.insert(0, finder)
    try:
        with _without_collections():
            return import_module(name)
    except Exception:
        if finder.deferred is None:
            raise
        _forget(unused)
    finally:
        sys.meta_path.remove(finder)
        if finder.deferred is not None:
            finder.deferred.close()
    return import_module(name)


@contextmanager
def _without_collections() -> Generator[None]:
    """Garbage collections find nothing in modules, and are a tenth of a large import."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _forget(package: str) -> None:
    for name in [key for key in sys.modules if key == package or key.startswith(f"{package}.")]:
        del sys.modules[name]


class _DeferringFinder:
    """Finds one package for the imports of one thread; a finder of ``sys.meta_path``."""

    def __init__(self, package: str) -> None:
        self.deferred: _DeferringLoader | None = None
        self._package = package
        self._thread = get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        if fullname != self._package or get_ident() != self._thread:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None or spec.submodule_search_locations is None:
            return None
        spec.loader = self.deferred = _DeferringLoader(spec.loader)
        return spec


class _DeferringLoader(Loader):
    """Makes a package whose ``__init__`` runs for the first name that is missing in it.

    ``importlib.util.LazyLoader`` runs it for every attribute, so also for ``__path__``, which the
    import of a submodule reads. Here ``__path__`` is missing only after ``close``.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._lock = RLock()
        self._is_open = True
        self._is_running = False
        self._path: list[str] = []
        self._module: ModuleType | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._module = module
        self._path = list(module.__path__)
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__dict__["__getattr__"] = self._run_init

    def close(self) -> None:
        """From now on the import of a submodule runs the ``__init__`` first, as usual."""
        with self._lock:
            self._is_open = False
            if self._module is not None and self._is_deferred(self._module):
                del self._module.__path__

    def _is_deferred(self, module: ModuleType) -> bool:
        return bool(module.__dict__.get("__getattr__") == self._run_init)

    def _run_init(self, name: str) -> Any:
        """The ``__getattr__`` of the package: run its ``__init__``, then look for the name."""
        module = self._module
        assert module is not None
        with self._lock:
            if self._is_running or (self._is_open and self._is_submodule(module, name)):
                # Of a submodule too: Python imports it when the name is missing.
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            if self._is_deferred(module):
                self._is_running = True
                try:
                    module.__path__ = self._path
                    self._loader.exec_module(module)
                finally:
                    self._is_running = False
                if self._is_deferred(module):  # it may have defined one of its own
                    del module.__dict__["__getattr__"]
        return getattr(module, name)

    def _is_submodule(self, module: ModuleType, name: str) -> bool:
        return PathFinder.find_spec(f"{module.__name__}.{name}", self._path) is not None
