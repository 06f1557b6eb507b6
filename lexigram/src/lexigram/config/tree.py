"""Raw settings as nested data that remembers where each value came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from lexigram.config.secrets import MASK

if TYPE_CHECKING:
    from lexigram.config.errors import ConfigProblem

KeyPath: TypeAlias = tuple[str | int, ...]

ENV_PREFIX: Final = "LEX_"
ENV_DELIMITER: Final = "__"
DEFAULT_SOURCE: Final = "default"


class Text(str):
    """Text without a type of its own (a variable): it is read as the type of its setting."""

    __slots__ = ()


@final
class SecretText(Text):
    """Text that came out of a variable with a secret name; shows itself as ``***``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


@final
class Broken:
    """Stands where a value could not be read; the problem has been reported already."""


class ConfigTrace:
    """Key path -> source of the value: a file with line, a variable, or ``default``."""

    def __init__(self) -> None:
        self._leaves: dict[KeyPath, str] = {}
        self._containers: dict[KeyPath, str] = {}
        # Section -> config class, as far as they are known: what variables can be called.
        self.models: dict[str, type[Any]] = {}
        # Variables that resemble no setting.
        self.ignored: set[str] = set()

    def record(self, path: KeyPath, source: str, *, container: bool = False) -> None:
        """Remember that the value at ``path`` came from ``source``."""
        (self._containers if container else self._leaves)[path] = source

    def forget(self, path: KeyPath) -> None:
        """Drop what is known about ``path`` and everything below it."""
        for known in (self._leaves, self._containers):
            for old in [old for old in known if old[: len(path)] == path]:
                del known[old]

    def add(self, other: ConfigTrace) -> None:
        """Take over all entries of ``other``; they win."""
        self.models.update(other.models)
        self.ignored.update(other.ignored)
        self._leaves.update(other._leaves)
        self._containers.update(other._containers)

    def source_of(self, key: str | KeyPath) -> str:
        """The source of the value at ``key`` (dotted, or a tuple); ``default`` if nobody set it."""
        path = tuple(key.split(".")) if isinstance(key, str) else key
        # A variable may hold a whole section as JSON: then it is the source of all below.
        above = (path[:length] for length in range(len(path), 0, -1))
        return next((self._leaves[p] for p in above if p in self._leaves), DEFAULT_SOURCE)

    def variables_of(self, path: KeyPath) -> list[str]:
        """The variables that set the value at ``path``; none if anything else sets a part of it."""
        known = (self._leaves, self._containers)
        sources = [s for part in known for p, s in part.items() if p[: len(path)] == path]
        return sources if all(source.startswith(ENV_PREFIX) for source in sources) else []

    def place_of(self, path: KeyPath) -> tuple[str, KeyPath]:
        """Where to look to repair ``path``: a source, and the key path that source really sets."""
        for known in (self._leaves, self._containers):
            if path in known:
                return known[path], path
        below = next((p for p in self._leaves if p[: len(path)] == path), None)
        if below is not None:
            return self._leaves[below], below
        for length in range(len(path) - 1, 0, -1):
            for known in (self._containers, self._leaves):
                if path[:length] in known:
                    return known[path[:length]], path[:length]
        return DEFAULT_SOURCE, ()


class ConfigTree:
    """The settings of one or more sources, with their trace and the problems met so far."""

    def __init__(self) -> None:
        self.data: dict[Any, Any] = {}
        self.trace = ConfigTrace()
        self.problems: list[ConfigProblem] = []

    @classmethod
    def of(cls, data: Mapping[str, Any], source: str) -> ConfigTree:
        """A tree of values given in code."""
        tree = cls()
        tree.data = dict(data)
        for path in _leaves(data, ()):
            tree.trace.record(path, source)
        return tree

    def overlay(self, upper: ConfigTree) -> None:
        """Lay ``upper`` over this tree: mappings merge, everything else is replaced."""
        self._merge(self.data, upper.data, (), upper)
        self.trace.add(upper.trace)
        self.problems += upper.problems

    def _merge(
        self, base: dict[Any, Any], upper: Mapping[Any, Any], path: KeyPath, tree: ConfigTree
    ) -> None:
        for key, value in upper.items():
            here = (*path, key)
            if isinstance(value, dict) and value and all(isinstance(k, int) for k in value):
                base[key] = self._patch(base.get(key), value, here, tree)
            elif isinstance(value, dict) and isinstance(base.get(key), dict | None):
                base[key] = dict(base.get(key) or {})
                self._merge(base[key], value, here, tree)
            else:
                self.trace.forget(here)
                base[key] = value

    def _patch(
        self, base: Any, upper: dict[int, Any], path: KeyPath, tree: ConfigTree
    ) -> list[Any]:
        """Items set one by one (``LEX_QUEUE__BACKENDS__0__URL``) laid over a list."""
        from lexigram.config.errors import ConfigProblem

        items: dict[Any, Any] = dict(enumerate(base)) if isinstance(base, list) else {}
        if not items:
            self.trace.forget(path)
        for index in sorted(upper):
            if index > len(items):
                source, key = tree.trace.place_of((*path, index))
                text = f"item {index} comes after a gap: the list has {len(items)} items before it"
                self.problems.append(ConfigProblem(source=source, key=key_text(key), message=text))
                break
            self._merge(items, {index: upper[index]}, path, tree)
        return list(items.values())


def key_text(path: KeyPath) -> str:
    """``queue.backends[0].driver`` for a key path."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def variable_name(path: KeyPath) -> str:
    """``LEX_QUEUE__BACKENDS__0__DRIVER`` for a key path."""
    return ENV_PREFIX + ENV_DELIMITER.join(str(part) for part in path).upper()


def without(data: Any, path: KeyPath) -> Any:
    """The data without the value at ``path``; what is not on the way is shared."""
    key, *rest = path
    if isinstance(data, Mapping):
        kept = {name: value for name, value in data.items() if rest or name != key}
        if rest and key in kept:
            kept[key] = without(kept[key], tuple(rest))
        return kept
    if isinstance(data, list) and rest:
        return [without(item, tuple(rest)) if n == key else item for n, item in enumerate(data)]
    return data


def _leaves(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    else:
        yield path
