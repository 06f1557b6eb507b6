"""A pool of child processes, started when they are needed, each of which can be ended alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from lexigram.contracts.core.errors import LexigramError
from lexigram.processes import child
from lexigram.processes.errors import (
    ProcessCallError,
    ProcessCrashedError,
    ProcessError,
    ProcessMemoryError,
    ProcessPoolClosedError,
    ProcessTimeoutError,
)

_PIECE = 256 * 1024  # of a frame: a larger write would be copied into the buffer of the loop
_EXIT_SECONDS = 5.0  # for a process that has closed its pipe to end by itself

T = TypeVar("T")


class ProcessPool:
    """At most ``size`` child processes, by default one per core; the first call starts the first.

    A call that reaches a limit, is cancelled or crashes costs its own process and no other one.
    The children end with this process, also when it is killed. A pool belongs to one event loop.
    """

    def __init__(self, size: int | None = None) -> None:
        self.size = _cores() if size is None else size
        self._slots = anyio.Semaphore(self.size)
        self._idle: list[_Child] = []
        self._children: set[_Child] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.aclose()

    async def run(
        self,
        function: Callable[..., T],
        *args: Any,
        timeout: float | None = None,
        memory: int | None = None,
    ) -> T:
        """What ``function(*args)`` returns in another process.

        The function lies at the top level of a module. Arguments and result are plain values:
        None, numbers, texts, bytes, and tuples, lists, sets and dictionaries of them; others are
        refused with ValueError. ``timeout`` is in seconds from the start of the call, ``memory``
        in bytes of the whole process (enforced on Linux). Cancellation kills the process.

        Exceptions of Lexigram and built-in ones are raised here as they were raised there, others
        as ProcessCallError. Raises ProcessTimeoutError, ProcessMemoryError, ProcessCrashedError.
        """
        name = _name(function)
        request = child.pack((name, args, timeout, memory), f"an argument of {name}")
        async with self._slots:
            worker = await self._take(name)
            answer: tuple[str, Any, bool] | None = None
            try:
                with anyio.move_on_after(timeout):
                    answer = await worker.call(name, request)
            except ProcessCrashedError as error:
                if self._is_closed:
                    raise ProcessPoolClosedError(name) from error
                raise
            finally:
                if answer is None or not answer[2] or self._is_closed:
                    await self._end(worker)
                else:
                    self._idle.append(worker)
        if answer is None:
            raise ProcessTimeoutError(name, timeout or 0.0)
        kind, value, _ = answer
        if kind == "memory":
            raise ProcessMemoryError(name, memory)
        if kind == "error":
            raise _error(name, *value)
        result: T = value
        return result

    async def aclose(self) -> None:
        """Kill every process; calls that are under way raise ProcessPoolClosedError."""
        self._is_closed = True
        for worker in list(self._children):
            await self._end(worker)

    async def _take(self, name: str) -> _Child:
        """A process that waits for a call; a new one where there is none."""
        while self._idle and not self._is_closed:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            await self._end(worker)
        worker = _Child()
        self._children.add(worker)
        # Shielded: nobody would end a process whose start was left half done.
        with anyio.CancelScope(shield=True):
            await worker.start()
        if self._is_closed:  # meanwhile
            await self._end(worker)
            raise ProcessPoolClosedError(name)
        return worker

    async def _end(self, worker: _Child) -> None:
        self._children.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        await worker.end()


class _Child:
    """One process and the frames from and to it."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._knows_path = False

    async def start(self) -> None:
        # A session of its own: Ctrl-C at the terminal is for the parent alone. -P: the folder of
        # the program must not hide modules of the standard library.
        command = [sys.executable, "-P", str(Path(child.__file__)), str(os.getpid())]
        try:
            self._process = await anyio.open_process(command, stderr=None, start_new_session=True)
        except OSError as error:
            raise ProcessError(f"no process can be started: {error}", cause=error) from error

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def call(self, name: str, request: bytes) -> tuple[str, Any, bool]:
        assert self._process is not None
        assert self._process.stdout is not None
        replies = BufferedByteReceiveStream(self._process.stdout)
        try:
            if not self._knows_path:
                await self._send(child.pack(sys.path, "sys.path"))
                self._knows_path = True
            await self._send(request)
            size = await replies.receive_exactly(child.HEADER.size)
            data = await replies.receive_exactly(*child.HEADER.unpack(size))
        except (
            anyio.IncompleteRead,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
        ) as error:
            # Killed at once, it would be collected before asyncio has read its exit code.
            with anyio.move_on_after(_EXIT_SECONDS, shield=True):
                await self._process.wait()
            await self.end()
            raise ProcessCrashedError(name, self._process.returncode) from error
        answer: tuple[str, Any, bool] = child.unpack(data)
        return answer

    async def end(self) -> None:
        """Kill the process and collect it; that takes no time, so it is not cancelled."""
        if self._process is None:
            return
        with anyio.CancelScope(shield=True):
            if self.is_alive:
                self._process.kill()
            await self._process.aclose()

    async def _send(self, data: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        for part in child.with_header(data):
            for start in range(0, len(part), _PIECE):
                await self._process.stdin.send(part[start : start + _PIECE])


def _name(function: Callable[..., Any]) -> str:
    """``module:qualified.name``, by which the child finds the function."""
    module, path = function.__module__, function.__qualname__
    if module == "__main__" or "<" in path:
        raise ValueError(
            f"{path} of {module} cannot be found by another process. "
            "Fix: define it at the top level of a module that can be imported"
        )
    return f"{module}:{path}"


def _error(
    function: str,
    kind: str,
    arguments: tuple[Any, ...],
    state: dict[str, Any],
    text: str,
    trace: str,
) -> Exception:
    found = _rebuilt(kind, arguments, state)
    if found is None:
        return ProcessCallError(function, kind.rpartition(":")[2], text, trace)
    found.add_note(f"In a process of {function}:\n{trace}")
    return found


def _rebuilt(name: str, arguments: tuple[Any, ...], state: dict[str, Any]) -> Exception | None:
    """The error, where its class is one of Lexigram or built in; None for any other."""
    try:
        kind = child.load(name)
    except (ImportError, AttributeError):
        return None
    if not isinstance(kind, type) or issubclass(kind, BaseExceptionGroup):
        return None
    if issubclass(kind, LexigramError):
        # Not by its constructor: subclasses make their text from other arguments.
        error = kind.__new__(kind)
        error.args = arguments
        error.__dict__.update(state)
        return error
    if not issubclass(kind, Exception) or kind.__module__ != "builtins":
        return None
    try:
        return kind(*arguments)
    except TypeError:  # an argument that it needs could not be sent
        return None


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
