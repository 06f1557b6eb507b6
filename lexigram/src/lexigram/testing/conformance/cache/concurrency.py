"""Several users of one cache: sharing, and loading a value once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from lexigram.contracts.core.result import Ok, Result
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheKeyError, CacheProtocol
from lexigram.testing.conformance.backed import Elapse
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec
from lexigram.testing.conformance.cache.storage import LONGER, SHORT


class SharingSpec(CacheSpec, capability=CacheCapability.SHARING):
    """A neighbour with the same keys."""

    async def test_equal_keys_of_two_caches_are_two_values(
        self, subject: CacheBackendProtocol, neighbour: CacheBackendProtocol
    ) -> None:
        await subject.set("key", "mine")
        await neighbour.set("key", "theirs")
        assert await subject.get("key") == Ok("mine")
        assert await neighbour.get("key") == Ok("theirs")

    async def test_removing_stops_at_the_own_keys(
        self, subject: CacheBackendProtocol, neighbour: CacheBackendProtocol
    ) -> None:
        await neighbour.set("key", "theirs")
        await subject.set("key", "mine")
        assert await subject.delete_pattern("*") == Ok(1)
        assert await subject.clear() == Ok(None)
        assert await neighbour.get("key") == Ok("theirs")


CALLERS = 100


class Source:
    """A slow loader that counts, and waits until it may go on."""

    def __init__(self, value: Any = "loaded") -> None:
        self.value = value
        self.runs = 0
        self.started = anyio.Event()
        self.may_end = anyio.Event()

    async def load(self) -> Any:
        self.runs += 1
        self.started.set()
        await self.may_end.wait()
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class LoadingSpec(CacheSpec, capability=CacheCapability.LOADING):
    """get_or_set in one process."""

    async def test_a_missing_value_is_loaded_and_stored(self, subject: CacheProtocol) -> None:
        source = ready({"a": [1]})
        assert await subject.get_or_set("key", source.load) == Ok({"a": [1]})
        assert await subject.get_or_set("key", source.load) == Ok({"a": [1]})
        assert await subject.get("key") == Ok({"a": [1]})
        assert source.runs == 1

    async def test_a_hundred_callers_of_a_missing_key_run_one_loader(
        self, subject: CacheProtocol
    ) -> None:
        source = Source()
        answers = await together([lambda: subject.get_or_set("key", source.load)] * CALLERS, source)
        assert answers == [Ok("loaded")] * CALLERS
        assert source.runs == 1

    async def test_every_caller_has_a_value_of_its_own(self, subject: CacheProtocol) -> None:
        source = Source({"list": [1]})
        answers = await together([lambda: subject.get_or_set("key", source.load)] * 3, source)
        for answer in answers:
            answer.unwrap()["list"].append(2)
        assert [answer.unwrap() for answer in answers] == [{"list": [1, 2]}] * 3
        assert await subject.get("key") == Ok({"list": [1]})

    async def test_different_keys_are_loaded_side_by_side(self, subject: CacheProtocol) -> None:
        first, second = Source(1), ready(2)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subject.get_or_set, "first", first.load)
            await first.started.wait()
            assert await subject.get_or_set("second", second.load) == Ok(2)
            first.may_end.set()

    async def test_a_failing_loader_fails_all_who_waited_and_poisons_nothing(
        self, subject: CacheProtocol
    ) -> None:
        source = Source(KeyError("no such thing"))
        seen: list[Exception] = []

        async def ask() -> Result[Any, Any]:
            try:
                return await subject.get_or_set("key", source.load)
            except KeyError as error:
                seen.append(error)
                return Ok(None)

        await together([ask] * 10, source)
        assert seen == [source.value] * 10
        assert source.runs == 1
        assert await subject.exists("key") == Ok(False)
        assert await subject.get_or_set("key", ready("better").load) == Ok("better")

    async def test_the_cancellation_of_the_first_caller_does_not_fail_the_others(
        self, subject: CacheProtocol
    ) -> None:
        first, second = Source("first"), ready("second")
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await subject.get_or_set("key", second.load))

        async with anyio.create_task_group() as others:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(subject.get_or_set, "key", first.load)
                    await first.started.wait()
                    for _ in range(5):
                        others.start_soon(ask)
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
        assert answers == [Ok("second")] * 5
        assert (first.runs, second.runs) == (1, 1)
        assert await subject.get("key") == Ok("second")

    async def test_none_is_stored_unless_it_should_not(self, subject: CacheProtocol) -> None:
        source = ready(None)
        assert await subject.get_or_set("key", source.load, cache_none=False) == Ok(None)
        assert await subject.exists("key") == Ok(False)
        assert await subject.get_or_set("key", source.load) == Ok(None)
        assert await subject.get_or_set("key", source.load) == Ok(None)
        assert await subject.exists("key") == Ok(True)
        assert source.runs == 2

    async def test_the_loaded_value_has_the_ttl(
        self, subject: CacheProtocol, elapse: Elapse
    ) -> None:
        source = ready(1)
        await subject.get_or_set("key", source.load, SHORT)
        await elapse(LONGER)
        await subject.get_or_set("key", source.load, SHORT)
        assert source.runs == 2

    async def test_what_is_written_while_it_is_loaded_wins(self, subject: CacheProtocol) -> None:
        source = Source("old")
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await subject.get_or_set("key", source.load))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await source.started.wait()
            await subject.set("key", "new")
            source.may_end.set()
        assert answers == [Ok("old")]
        assert await subject.get("key") == Ok("new")

    async def test_what_is_removed_while_it_is_loaded_is_loaded_again(
        self, subject: CacheProtocol
    ) -> None:
        source = Source("old")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subject.get_or_set, "key", source.load)
            await source.started.wait()
            await subject.delete("key")
            source.may_end.set()
        assert await subject.get_or_set("key", ready("new").load) == Ok("new")

    async def test_a_bad_key_or_ttl_runs_no_loader(self, subject: CacheProtocol) -> None:
        source = ready(1)
        for answer in (
            await subject.get_or_set("", source.load),
            await subject.get_or_set("key", source.load, 0),
        ):
            assert isinstance(answer.unwrap_err(), CacheKeyError)
        assert source.runs == 0


def ready(value: Any) -> Source:
    """A source that does not make anybody wait."""
    source = Source(value)
    source.may_end.set()
    return source


async def together(
    asks: list[Callable[[], Awaitable[Result[Any, Any]]]], source: Source
) -> list[Result[Any, Any]]:
    """All callers wait before the loader may end."""
    answers: list[Result[Any, Any]] = []

    async def one(ask: Callable[[], Awaitable[Result[Any, Any]]]) -> None:
        answers.append(await ask())

    async with anyio.create_task_group() as tasks:
        for ask in asks:
            tasks.start_soon(one, ask)
        await source.started.wait()
        # A reader of a store in a thread or on a server seems to wait, and does not yet wait
        # for the loader: a moment for them, several times.
        for _ in range(10):
            await anyio.wait_all_tasks_blocked()
            await anyio.sleep(0.01)
        source.may_end.set()
    return answers


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
