"""What suites of contracts with a backend share: how time passes, and how the backend breaks."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import anyio
import pytest

from lexigram.testing.conformance.suite import ConformanceSuite

Elapse = Callable[[float], Awaitable[None]]


class BackedSuite(ConformanceSuite):
    """Fixtures ``elapse`` and ``broken``, made of ``advance`` and ``outage`` of the subject."""

    @pytest.fixture
    def advance(self, subject: Any) -> Callable[[float], Any]:
        """Lets seconds pass for the subject, plain or async; they really pass by default."""
        return anyio.sleep

    @pytest.fixture
    def elapse(self, advance: Callable[[float], Any]) -> Elapse:
        """``advance``, always to be awaited."""

        async def elapse(seconds: float) -> None:
            done = advance(seconds)
            if inspect.isawaitable(done):
                await done

        return elapse

    @pytest.fixture
    def outage(self, subject: Any) -> Callable[[], Any]:
        """Makes a context manager, plain or async, inside which the backend is out of reach."""
        pytest.fail("declares 'outage' but gives no fixture `outage`", pytrace=False)


async def enter(stack: AsyncExitStack, manager: Any) -> None:
    """Enter a context manager, plain or async."""
    if isinstance(manager, AbstractAsyncContextManager):
        await stack.enter_async_context(manager)
    else:
        stack.enter_context(manager)
