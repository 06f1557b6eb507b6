"""What the tests of process pools run in other processes."""

import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path

from lexigram.contracts.core.errors import NotFoundError


class ForeignError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def echo(value):
    return value


def pid():
    return os.getpid()


def print_and_read():
    print("from Python")
    os.write(1, b"from below Python")
    return sys.stdin.read()


def fill(size):
    return len(b"x" * size)


def touch_and_return(size):
    """The number of the process, after it once needed so much memory."""
    fill(size)
    return os.getpid()


def spin(mark):
    """Write who it is, then compute for ever with the interpreter held, as a native parser may."""
    Path(mark).write_text(str(os.getpid()))
    while True:
        pass


def wait_for(mark):
    while not Path(mark).exists():
        time.sleep(0.01)
    return True


def crash():
    ctypes.string_at(0)


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    sys.exit(3)


def raise_ours():
    raise NotFoundError("no such thing", details={"key": 7, "by": object()}, hint="look again")


def raise_built_in():
    raise KeyError("name")


def raise_foreign():
    raise ForeignError(1, 2)


def raise_group():
    raise ExceptionGroup("two", [ValueError("a"), ForeignError(1, 2)])


def return_object():
    return object()


def limits():
    return [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_CPU, resource.RLIMIT_DATA)]
