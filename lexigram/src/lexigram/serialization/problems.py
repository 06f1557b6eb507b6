"""From an error deep inside a value to one error that says where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lexigram.serialization.errors import DecodeError, EncodeError, SerializationError
from lexigram.serialization.types import label

MOST = 10  # problems listed in details; the first is in the text


class Step(str):
    """A note on an exception: one step of the path from the root to the place."""

    __slots__ = ()


def at(error: BaseException, key: str | int) -> None:
    """Note that ``error`` happened below ``key``; called from the inside out."""
    error.add_note(Step(f"[{key}]" if isinstance(key, int) else f".{key}"))


def decode_error(error: Exception, kind: Any) -> SerializationError:
    """What a caller of ``decode`` sees."""
    found = list(_leaves(error, ""))
    path, leaf = found[0]
    if isinstance(leaf, SerializationError):
        return _add_path(leaf, path)
    problems = [f"{where}: {_text(cause)}" for where, cause in found]
    return DecodeError(
        f"{path}: {_text(leaf)}" + (f" (and {len(found) - 1} more)" if len(found) > 1 else ""),
        details={"path": path, "type": label(kind), "problems": problems[:MOST]},
        hint=f"the data must fit {label(kind)}",
        cause=leaf,
    )


def encode_error(error: Exception, kind: Any) -> SerializationError:
    """What a caller of ``encode`` sees."""
    path, leaf = next(_leaves(error, ""))
    if isinstance(leaf, SerializationError):
        return _add_path(leaf, path)
    return EncodeError(
        f"{path}: {_text(leaf)}",
        details={"path": path, "type": label(kind)},
        hint="give the value a type that the format knows",
        cause=leaf,
    )


def expect_error(what: Any, value: Any) -> DecodeError:
    """The data hold something else than ``what``; the value itself stays out of the text."""
    name = what if isinstance(what, str) else label(what)
    return DecodeError(
        f"expected {name}, got {type(value).__name__}",
        details={"expected": name, "got": type(value).__name__},
        hint="compare the data with the type they are read as",
    )


def _add_path(error: SerializationError, path: str) -> SerializationError:
    if "path" not in error.details:
        error.details["path"] = path
        error.message = f"{path}: {error.message}"
    return error


def _leaves(error: BaseException, above: str) -> Iterator[tuple[str, BaseException]]:
    here = above + "".join(reversed(list(_steps(error))))
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner, here)
    else:
        yield f"${here}", error


def _steps(error: BaseException) -> Iterator[str]:
    """Notes from the inside out: ours, and the attribute notes of cattrs."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, Step):
            yield note
        elif hasattr(note, "name"):
            yield f".{note.name}"


def _text(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"the key {error.args[0]!r} is missing"
    if isinstance(error, SerializationError):
        return error.message
    return str(error) or type(error).__name__


def is_recursion(error: BaseException) -> bool:
    """Whether the stack ended somewhere inside."""
    return any(isinstance(leaf, RecursionError) for _, leaf in _leaves(error, ""))
