"""Filters change a value, one after the other, and may refuse."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from lexigram.contracts.core.hooks import HookRegistryProtocol
from lexigram.testing.conformance.hooks.spec import Calls, HookCapability, HookSpec


class FiltersSpec(HookSpec, capability=HookCapability.FILTERS):
    """register_filter, apply_filter, has_filter."""

    async def test_without_filters_the_value_comes_back(
        self, subject: HookRegistryProtocol
    ) -> None:
        value = object()
        assert await subject.apply_filter("price", value) is value

    async def test_each_filter_gets_what_the_last_one_returned(
        self, subject: HookRegistryProtocol
    ) -> None:
        async def double(value: int) -> int:
            return value * 2

        subject.register_filter("price", lambda value: value + 1)
        subject.register_filter("price", double)
        assert await subject.apply_filter("price", 10) == 22

    async def test_none_is_a_value_a_filter_may_return(self, subject: HookRegistryProtocol) -> None:
        subject.register_filter("price", lambda _: None)
        assert await subject.apply_filter("price", 10) is None

    async def test_filters_get_the_arguments_by_name(self, subject: HookRegistryProtocol) -> None:
        def cut(value: int, **facts: Any) -> Any:
            return value - facts["rebate"], facts["hook_name"]

        subject.register_filter("price", cut)
        answer: Any = await subject.apply_filter("price", 10, rebate=3, hook_name="free")
        assert answer == (7, "free")

    async def test_a_filter_registered_twice_is_applied_twice(
        self, subject: HookRegistryProtocol
    ) -> None:
        def add(value: int) -> int:
            return value + 1

        subject.register_filter("price", add)
        subject.register_filter("price", add)
        assert await subject.apply_filter("price", 10) == 12

    async def test_an_error_reaches_the_caller_and_ends_the_chain(
        self, subject: HookRegistryProtocol
    ) -> None:
        calls = Calls()

        async def refuse(_: int) -> int:
            raise ValueError("too cheap")

        subject.register_filter("price", refuse)
        subject.register_filter("price", calls.noting("after"))
        with pytest.raises(ValueError, match="too cheap"):
            await subject.apply_filter("price", 10)
        assert calls == []

    async def test_cancellation_passes_through(self, subject: HookRegistryProtocol) -> None:
        async def wait_for_ever(value: int) -> int:
            scope.cancel()
            await anyio.sleep_forever()
            return value

        subject.register_filter("price", wait_for_ever)
        with anyio.CancelScope() as scope:
            await subject.apply_filter("price", 10)
        assert scope.cancelled_caught

    async def test_actions_and_filters_of_one_name_do_not_meet(
        self, subject: HookRegistryProtocol
    ) -> None:
        calls = Calls()
        subject.register_action("price", calls.keep)
        assert subject.has_filter("price") is False
        subject.register_filter("price", lambda value: value + 1)
        assert subject.has_filter("price") is True
        assert await subject.apply_filter("price", 1) == 2
        assert calls == []
