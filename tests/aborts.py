"""Exceptions of a handler's own making that are no ``Exception``."""

import asyncio
from collections.abc import Callable

import pytest


class Abort(BaseException):
    pass


# Made for each call: a traceback must not grow from test to test.
KINDS: dict[str, Callable[[], BaseException]] = {
    "cancelled": asyncio.CancelledError,
    "generator-exit": GeneratorExit,
    "base": lambda: Abort("stop"),
    "group": lambda: BaseExceptionGroup("several", [Abort(), ValueError("one")]),
    "system-exit": lambda: SystemExit(3),
}

each_abort = pytest.mark.parametrize("abort", list(KINDS.values()), ids=list(KINDS))
