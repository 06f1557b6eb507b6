"""Names of classes in data: only what was registered is ever built."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, TypeVar

from lexigram.serialization.errors import TypeRegistrationError

C = TypeVar("C", bound=type[Any])


class TypeRegistry:
    """Classes by the name that stands for them in data.

    A name found in data is looked up here and nowhere else: nothing is imported by it.
    Registering is meant for import time or application start; a codec that is already in use
    takes notice of later registrations too.
    """

    def __init__(self) -> None:
        self.version = 0  # codecs forget their plans when it moves
        self._lock = Lock()
        self._classes: dict[str, type[Any]] = {}
        self._names: dict[type[Any], str] = {}

    def register(self, cls: C, name: str | None = None) -> C:
        """Let ``cls`` be written and read as ``name``; returns ``cls``, so it decorates too.

        Without a name it is the name of the class. The same registration twice is fine; a name
        for two classes, or two names for a class, is a ``TypeRegistrationError``.
        """
        self._check_class(cls)
        wanted = cls.__name__ if name is None else name
        with self._lock:
            self._check_free(cls, wanted)
            if cls not in self._names:
                self._classes[wanted] = cls
                self._names[cls] = wanted
                self.version += 1
        return cls

    def name_of(self, cls: type[Any]) -> str | None:
        """The name ``cls`` is registered under."""
        return self._names.get(cls)

    def class_of(self, name: str) -> type[Any] | None:
        """The class registered as ``name``."""
        return self._classes.get(name)

    def kinds_of(self, base: type[Any]) -> Mapping[str, type[Any]]:
        """Registered classes that may stand where ``base`` is declared, by name."""
        known = list(self._classes.items())
        return {name: cls for name, cls in known if issubclass(cls, base)}

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._classes)

    def _check_class(self, cls: Any) -> None:
        from lexigram.serialization.types import is_record

        if not (isinstance(cls, type) and is_record(cls)):
            raise TypeRegistrationError(
                f"{cls!r} is neither an attrs class nor a dataclass",
                details={"class": repr(cls)},
                hint="decorate it with attrs.define, attrs.frozen or dataclass before registering",
            )

    def _check_free(self, cls: type[Any], name: str) -> None:
        holder, earlier = self._classes.get(name), self._names.get(cls)
        if holder not in (None, cls):
            raise TypeRegistrationError(
                f"the name {name!r} already stands for {_label(holder)}",
                details={"name": name, "class": _label(cls), "holder": _label(holder)},
                hint="register one of them with another name=",
            )
        if earlier not in (None, name):
            raise TypeRegistrationError(
                f"{_label(cls)} is already registered as {earlier!r}",
                details={"name": name, "class": _label(cls), "earlier": earlier},
                hint="register a class once",
            )


def _label(cls: type[Any] | None) -> str:
    return f"{cls.__module__}.{cls.__qualname__}" if cls is not None else ""
