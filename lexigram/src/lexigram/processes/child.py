"""The program of a child process: read a call, do it, write its result, until the parent ends.

Started by its path, so it imports the standard library only until it has the parent's ``sys.path``.
"""

import importlib
import marshal
import math
import os
import resource
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO, cast

HEADER = struct.Struct("!Q")  # length of the frame that follows
RECYCLE_BYTES = 256 * 1024 * 1024  # a process that once had so much is not used again
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


def main() -> None:
    # What a library prints must not get between the frames: from here on it goes to stderr.
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - before sys.path is complete
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    _die_with(int(sys.argv[1]))
    sys.path[:] = _read(requests)
    while (call := _read(requests)) is not None:
        replies.writelines(with_header(answer(*call)))
        replies.flush()
        del call
        return_free_memory()


def pack(value: Any, what: str) -> bytes:
    """A value as bytes. Raises ValueError for what would not come back equal."""
    try:
        return marshal.dumps(value)
    except ValueError as error:
        raise ValueError(
            f"{what} cannot be sent between processes: it has something else than None, numbers,"
            " texts, bytes, and tuples, lists, sets and dictionaries of them"
        ) from error


def unpack(data: bytes) -> Any:
    """What was packed. Both ends are the same interpreter, and neither takes data of others."""
    return marshal.loads(data)  # noqa: S302


def with_header(data: bytes) -> tuple[bytes, bytes]:
    """A frame; in two parts, as data may be large."""
    return HEADER.pack(len(data)), data


def answer(
    name: str, arguments: tuple[Any, ...], seconds: float | None, memory: int | None
) -> bytes:
    """Packed: the kind of the answer, its value, and whether this process is to be used again."""
    try:
        _limit(seconds, memory)
        result = load(name)(*arguments)
        return pack(("result", result, _is_reusable()), f"the result of {name}")
    except MemoryError:
        _limit(None, None)
        return pack(("memory", None, False), name)
    except BaseException as error:  # noqa: BLE001 - also SystemExit is an answer
        _limit(None, None)
        return pack(("error", describe(error), _is_reusable()), name)
    finally:
        _limit(None, None)


def load(name: str) -> Callable[..., Any]:
    """The function called ``module:qualified.name``."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return cast("Callable[..., Any]", found)


def describe(error: BaseException) -> tuple[str, tuple[Any, ...], dict[str, Any], str, str]:
    """Type, arguments and attributes as plain values; the text and the traceback for the rest."""
    kind = type(error)
    trace = "".join(traceback.format_exception(error))
    name = f"{kind.__module__}:{kind.__qualname__}"
    return name, tuple(map(_plain, error.args)), _plain(vars(error)), str(error), trace


def return_free_memory() -> None:
    """Give memory that is free back to the system, where the C library keeps it (glibc)."""
    if sys.platform.startswith("linux"):
        import ctypes

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _plain(value: Any) -> Any:
    """The value; in place of what cannot be sent, how it is shown."""
    try:
        marshal.dumps(value)
    except ValueError:
        if isinstance(value, dict):
            return {str(key): _plain(one) for key, one in value.items()}
        return repr(value)
    return value


def _is_reusable() -> bool:
    return _peak() < RECYCLE_BYTES


def _peak() -> int:
    """The most memory this process had, in bytes."""
    try:
        with open("/proc/self/status", "rb") as status:  # noqa: PTH123 - as above
            return next(int(line.split()[1]) for line in status if line[:6] == b"VmHWM:") * 1024
    except OSError:  # not Linux, where ru_maxrss would begin with that of the parent
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _read(stream: BinaryIO) -> Any:
    """The next value; None at the end of the stream."""
    header = stream.read(HEADER.size)
    return unpack(stream.read(*HEADER.unpack(header))) if header else None


def _limit(seconds: float | None, memory: int | None) -> None:
    """Soft limits, so that the next call may have others.

    RLIMIT_DATA counts what was written to: address space that libraries only reserve is free.
    The time is a second guard behind that of the parent, who may have been stopped.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = math.ceil(used.ru_utime + used.ru_stime)
    cores = os.cpu_count() or 1
    cpu = None if seconds is None else spent + math.ceil(seconds) * cores + 1
    for kind, limit in ((resource.RLIMIT_CPU, cpu), (resource.RLIMIT_DATA, memory)):
        hard = resource.getrlimit(kind)[1]
        soft = hard if limit is None else limit
        resource.setrlimit(kind, (soft if hard < 0 or soft < hard else hard, hard))


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when the parent ends, whatever it is doing then."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:  # it ended before it could be watched
        sys.exit()


if __name__ == "__main__":
    main()
