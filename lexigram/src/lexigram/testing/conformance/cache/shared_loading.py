"""A missing value is loaded once among several processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from lexigram.contracts.core.result import Ok, Result
from lexigram.contracts.infra.cache import CacheProtocol
from lexigram.testing.conformance.cache.loading import CALLERS, Source, ready, together
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec


class SharedLoadingSpec(CacheSpec, capability=CacheCapability.SHARED_LOADING):
    """get_or_set of several processes."""

    async def test_callers_of_two_caches_run_one_loader(
        self, subject: CacheProtocol, peer: CacheProtocol
    ) -> None:
        source = Source()
        asks: list[Callable[[], Awaitable[Result[Any, Any]]]] = [
            lambda cache=cache: cache.get_or_set("key", source.load)  # type: ignore[misc]
            for cache in (subject, peer) * (CALLERS // 2)
        ]
        assert await together(asks, source) == [Ok("loaded")] * CALLERS
        assert source.runs == 1

    async def test_after_a_failure_the_other_runs_its_own_loader(
        self, subject: CacheProtocol, peer: CacheProtocol
    ) -> None:
        failing, working = Source(KeyError("no")), ready("works")
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await peer.get_or_set("key", working.load))

        async with anyio.create_task_group() as tasks:
            task = subject.get_or_set("key", failing.load)

            async def fail() -> None:
                with pytest.raises(KeyError):
                    await task

            tasks.start_soon(fail)
            await failing.started.wait()
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            failing.may_end.set()
        assert answers == [Ok("works")]
        assert (failing.runs, working.runs) == (1, 1)
