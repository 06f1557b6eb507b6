"""The parent of the processes that tests start: every module of the product is imported once.

Runs as a script, with a socket to the tests as its standard input; `tests.processes` asks it.
A request is a JSON object with the words of the command, the folder and the environment, and
three file descriptors beside it. The answer is the number of the new process.
"""

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

REQUEST_BYTES = 1 << 20


# What the product imports when it needs it, and many programs need. Not lancedb, nor the libraries
# of Google and Azure: they have threads or locks of their own, which a fork would break.
LATE = ["anyio._backends._asyncio", "cattrs", "loguru", "rich.progress", "rich.table", "uvicorn"]
LATE += ["aio_pika", "aiobotocore.session", "nats", "redis.asyncio"]


def preload() -> None:
    import lexigram
    from lexigram.ai import workers  # `lexigram.ai` has no file: the walk would not find it

    gc.disable()  # all of it is kept
    for package in (lexigram, workers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the collector of a child would copy every page it looks at
    gc.enable()


def serve(requests: socket.socket) -> dict[str, Any]:
    """Return a request, in a process of its own; this process stays inside until the tests end."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 3)
        if not data:
            os._exit(0)
        request: dict[str, Any] = json.loads(data)
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            # The one between ends at once: its child goes to the tests, which can wait for it.
            parent = os.getpid()
            child = os.fork()
            if child:
                os.write(writing, str(child).encode())
                os._exit(0)
            while os.getppid() == parent:
                time.sleep(0.0002)
            os.close(reading)
            os.close(writing)
            requests.close()
            for standard, descriptor in enumerate(descriptors):
                os.dup2(descriptor, standard)
            for descriptor in descriptors:
                os.close(descriptor)
            return request
        for descriptor in (writing, *descriptors):
            os.close(descriptor)
        os.waitpid(between, 0)
        requests.send(os.read(reading, 32))
        os.close(reading)


def become(request: dict[str, Any]) -> Sequence[str]:
    """Take folder, environment and streams of the request, as a new interpreter would."""
    if request["session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.stdin = sys.__stdin__ = _open(sys.stdin, line_buffering=False)
    sys.stdout = sys.__stdout__ = _open(sys.stdout, line_buffering=os.isatty(1))
    sys.stderr = sys.__stderr__ = _open(sys.stderr, line_buffering=True)
    paths = os.environ.get("PYTHONPATH", "")
    sys.path[:0] = [str(Path(path).resolve()) for path in paths.split(os.pathsep) if path]
    importlib.invalidate_caches()
    words: Sequence[str] = request["words"]
    return words


def _open(stream: TextIO, *, line_buffering: bool) -> TextIO:
    """The stream of this process: the parent's remembers whether its own file could seek."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED")) and stream.mode == "w"
    return io.TextIOWrapper(
        open(stream.fileno(), stream.mode + "b", buffering=0 if unbuffered else -1, closefd=False),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=line_buffering,
        write_through=unbuffered,
    )


def run(words: Sequence[str]) -> None:
    """Run `-m MODULE`, `-c CODE` or a file, followed by its arguments, as the main program."""
    if words[0] == "-m":
        sys.argv = list(words[1:])
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path.insert(0, "")
        code = compile(words[1], "<string>", "exec")
    else:
        sys.argv = list(words)
        main.__file__ = words[0]
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        code = compile(Path(words[0]).read_bytes(), words[0], "exec")
    exec(code, vars(main))


def end(error: BaseException | None) -> None:
    """End as an interpreter does, but for taking 2,000 modules apart, which takes longer than all."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if code and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError):  # closed, or nobody reads it
            stream.flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


if __name__ == "__main__":
    del sys.path[0]  # this folder
    preload()
    request = serve(socket.socket(fileno=os.dup(0)))  # only a child gets past this line
    try:
        run(become(request))
    except BaseException as error:
        end(error)
    end(None)
