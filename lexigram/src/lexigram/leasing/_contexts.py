"""Run a coroutine in a context of its own, without a task of its own."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def await_in_context(context: Context, coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await the coroutine so that what it sets in the context ends with it.

    The task stays the same, so cancel scopes and time-outs work as without it. Tasks and
    callbacks that it starts get the context too.
    """
    try:
        waits_for = context.run(coroutine.send, None)
        while True:
            try:
                answer = yield waits_for
            except BaseException as error:  # noqa: BLE001 - handed on, cancellation too
                waits_for = context.run(coroutine.throw, error)
            else:
                waits_for = context.run(coroutine.send, answer)
    except StopIteration as end:  # only the return: a coroutine cannot raise it
        value: T = end.value
        return value
