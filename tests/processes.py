"""Start Python programs as `subprocess` does, ten times as fast: forked from a preloaded parent.

`Popen` and `run` take what those of `subprocess` take. The processes are real ones: children of
the test, with a number, signals, streams and an exit code of their own. What a fork cannot give
(another interpreter, flags of Python, a machine without subreapers) is started in the usual way.
"""

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("forkserver.py")
SCRIPTS = Path(sys.executable).parent
# Read when an interpreter starts: a fork cannot follow a change of them. PYTHONPATH it can.
STARTUP = ("PYTHON", "LC_", "LANG", "LD_", "COVERAGE_")
FOLLOWED = {"PYTHONPATH", "PYTHONUNBUFFERED"}
SET_SUBREAPER = 36  # of prctl(2)


class Popen(subprocess.Popen[Any]):
    """A process of a Python program, from the preloaded parent where that is possible."""

    def _execute_child(self, args: Any, executable: Any, *rest: Any) -> None:
        preexec_fn, _, pass_fds, folder, env, _, _, shell, *streams = rest[:14]
        _, gid, gids, uid, umask, session, group = rest[14:]
        words = None if shell or executable else _program(args)
        plain = (preexec_fn, pass_fds, gid, gids, uid, umask, group)
        if words is None or plain != (None, (), None, None, None, -1, -1) or not _can_fork(env):
            super()._execute_child(args, executable, *rest)  # type: ignore[misc]
            return
        try:
            request = {
                "words": words,
                "folder": os.fspath(folder or Path.cwd()),
                "environment": dict(os.environ if env is None else env),
                "session": session,
            }
            own = [streams[0], streams[3], streams[5]]  # what the child reads and writes
            descriptors = [own if own != -1 else normal for normal, own in enumerate(own)]
            self.pid = _FORKSERVER.start(request, descriptors)
            self._child_created = True
        finally:
            self._close_pipe_fds(*streams)  # type: ignore[attr-defined]


def run(
    args: Any,
    *,
    input: Any = None,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` with the processes of this module."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(args, **options) as process:
        try:
            output, errors = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(args, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


class _Forkserver:
    """The preloaded parent of this test process, started when the first program asks for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def start(self, request: Mapping[str, object], descriptors: list[int]) -> int:
        with self._lock:
            if self._socket is None:
                self._socket = self._connect()
            _be_subreaper(True)
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
                answer = self._socket.recv(32)
            finally:
                _be_subreaper(False)
        if not answer:
            raise RuntimeError("the forkserver of the tests has ended: see its message above")
        return int(answer)

    def _connect(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        size = 1 << 20
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        server = subprocess.Popen(
            [sys.executable, str(SERVER)], stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=env
        )
        theirs.close()
        atexit.register(server.wait)
        atexit.register(ours.close)
        return ours


_FORKSERVER = _Forkserver()


def _program(args: Any) -> list[str] | None:
    """What follows the interpreter in the command; None where no program of Python is started."""
    if isinstance(args, str | bytes | os.PathLike):
        return None
    words = [os.fspath(word) for word in args]
    first = Path(words[0])
    if words[0] == sys.executable:
        words = words[1:]
        flag = words[0].startswith("-") if words else True
        return None if flag and (len(words) < 2 or words[0] not in {"-m", "-c"}) else words
    if first.parent == SCRIPTS and first.name in {"lexigram", "lex"}:
        return words
    return None


def _can_fork(env: Mapping[str, str] | None) -> bool:
    if not sys.platform.startswith("linux") or "COVERAGE_PROCESS_CONFIG" in os.environ:
        return False
    if env is None:
        return True
    names = {name for name in {*env, *os.environ} if name.startswith(STARTUP)} - FOLLOWED
    return all(env.get(name) == os.environ.get(name) for name in names)


def _be_subreaper(yes: bool) -> None:
    """The orphans of our descendants become our children: so does a process of the forkserver."""
    if ctypes.CDLL(None, use_errno=True).prctl(SET_SUBREAPER, int(yes), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
