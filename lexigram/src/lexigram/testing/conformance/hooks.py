"""The conformance suite of HookRegistryProtocol."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from lexigram.contracts.core.hooks import HookPriority, HookRegistryProtocol
from lexigram.testing.conformance.suite import ConformanceSuite

__all__ = ["HookCapability", "HookConformance"]


class HookCapability(StrEnum):
    """What a hook registry can do; all of it is the core."""

    ACTIONS = "actions"
    FILTERS = "filters"
    ORDER = "order"
    ONCE = "once"
    REMOVAL = "removal"


class HookSpec(ConformanceSuite):
    """The contract and its core."""

    contract = HookRegistryProtocol
    core = frozenset(HookCapability)


class Calls(list[Any]):
    """Keeps what handlers were called with."""

    def noting(self, mark: Any) -> Callable[..., None]:
        """A plain handler that appends its mark."""
        return lambda *_, **__: self.append(mark)

    async def keep(self, **kwargs: Any) -> None:
        """An async action that appends its arguments."""
        self.append(kwargs)

    def keep_plainly(self, **kwargs: Any) -> None:
        """A plain action that appends its arguments."""
        self.append(kwargs)


class ActionsSpec(HookSpec, capability=HookCapability.ACTIONS):
    """register_action, call_action, has_action."""

    async def test_plain_and_async_actions_get_the_arguments_by_name(
        self, subject: HookRegistryProtocol
    ) -> None:
        calls = Calls()
        subject.register_action("saved", calls.keep)
        subject.register_action("saved", calls.keep_plainly)
        await subject.call_action("saved", id=7, hook_name="any name is free")
        assert calls == [{"id": 7, "hook_name": "any name is free"}] * 2

    async def test_the_caller_waits_for_the_actions(self, subject: HookRegistryProtocol) -> None:
        calls = Calls()

        async def slow() -> None:
            for _ in range(10):
                await checkpoint()
            calls.append("slow")

        subject.register_action("saved", slow)
        await subject.call_action("saved")
        assert calls == ["slow"]

    async def test_actions_of_other_hooks_are_not_called(
        self, subject: HookRegistryProtocol
    ) -> None:
        calls = Calls()
        subject.register_action("loaded", calls.noting("loaded"))
        await subject.call_action("saved")
        assert calls == []

    async def test_an_action_registered_twice_is_called_twice(
        self, subject: HookRegistryProtocol
    ) -> None:
        calls = Calls()
        subject.register_action("saved", calls.keep)
        subject.register_action("saved", calls.keep)
        await subject.call_action("saved")
        assert calls == [{}, {}]

    async def test_an_error_reaches_neither_the_caller_nor_the_next_action(
        self, subject: HookRegistryProtocol
    ) -> None:
        calls = Calls()

        def fail(**_: Any) -> None:
            raise KeyError("plain")

        async def fail_async(**_: Any) -> None:
            raise KeyError("async")

        for handler in (fail, fail_async, calls.keep):
            subject.register_action("saved", handler)
        await subject.call_action("saved", id=7)
        assert calls == [{"id": 7}]

    async def test_cancellation_passes_through(self, subject: HookRegistryProtocol) -> None:
        calls = Calls()

        async def wait_for_ever() -> None:
            scope.cancel()
            await anyio.sleep_forever()

        subject.register_action("saved", wait_for_ever)
        subject.register_action("saved", calls.noting("after"))
        with anyio.CancelScope() as scope:
            await subject.call_action("saved")
        assert scope.cancelled_caught
        assert calls == []

    async def test_a_hook_has_an_action_when_somebody_listens(
        self, subject: HookRegistryProtocol
    ) -> None:
        assert subject.has_action("saved") is False
        subject.register_filter("saved", lambda value: value)
        assert subject.has_action("saved") is False
        subject.register_action("saved", Calls().keep)
        assert subject.has_action("saved") is True
        assert subject.has_action("loaded") is False


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


class OrderSpec(HookSpec, capability=HookCapability.ORDER):
    """The ``priority`` of actions and filters."""

    async def test_lower_priorities_run_first(self, subject: HookRegistryProtocol) -> None:
        calls = Calls()
        for priority in (HookPriority.LATE, -5, HookPriority.EARLY, 1000, HookPriority.EARLIEST):
            subject.register_action("saved", calls.noting(int(priority)), priority)
        subject.register_action("saved", calls.noting("normal"))
        await subject.call_action("saved")
        assert calls == [-5, 0, 50, "normal", 200, 1000]

    async def test_equal_priorities_run_as_registered(self, subject: HookRegistryProtocol) -> None:
        calls = Calls()
        for mark in "badce":
            subject.register_action("saved", calls.noting(mark))
        await subject.call_action("saved")
        assert "".join(calls) == "badce"

    async def test_filters_follow_the_same_order(self, subject: HookRegistryProtocol) -> None:
        subject.register_filter("text", lambda text: text + "c", HookPriority.LATE)
        subject.register_filter("text", lambda text: text + "a", HookPriority.EARLY)
        subject.register_filter("text", lambda text: text + "b", HookPriority.EARLY)
        assert await subject.apply_filter("text", "") == "abc"

    async def test_an_action_starts_when_the_one_before_has_ended(
        self, subject: HookRegistryProtocol
    ) -> None:
        calls = Calls()

        async def slow() -> None:
            calls.append("start")
            await checkpoint()
            calls.append("end")

        subject.register_action("saved", slow)
        subject.register_action("saved", slow)
        await subject.call_action("saved")
        assert calls == ["start", "end", "start", "end"]


class OnceSpec(HookSpec, capability=HookCapability.ONCE):
    """``once=True``."""

    async def test_an_action_for_one_use_is_gone_after_it(
        self, subject: HookRegistryProtocol
    ) -> None:
        calls = Calls()
        subject.register_action("saved", calls.keep, once=True)
        assert subject.has_action("saved") is True
        await subject.call_action("saved", id=1)
        await subject.call_action("saved", id=2)
        assert calls == [{"id": 1}]
        assert subject.has_action("saved") is False

    async def test_two_calls_at_once_run_it_once(self, subject: HookRegistryProtocol) -> None:
        calls = Calls()

        async def slow() -> None:
            calls.append("called")
            for _ in range(5):
                await checkpoint()

        async def wait_a_turn() -> None:
            await checkpoint()

        # The first action lets both calls begin before either reaches the one for one use.
        subject.register_action("saved", wait_a_turn, 0)
        subject.register_action("saved", slow, once=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subject.call_action, "saved")
            tasks.start_soon(subject.call_action, "saved")
        assert calls == ["called"]

    async def test_an_action_that_calls_its_own_hook_does_not_run_again(
        self, subject: HookRegistryProtocol
    ) -> None:
        calls = Calls()

        async def again() -> None:
            calls.append("called")
            await subject.call_action("saved")

        subject.register_action("saved", again, once=True)
        await subject.call_action("saved")
        assert calls == ["called"]

    async def test_an_action_that_failed_was_used(self, subject: HookRegistryProtocol) -> None:
        calls = Calls()

        def fail() -> None:
            calls.append("called")
            raise KeyError("boom")

        subject.register_action("saved", fail, once=True)
        await subject.call_action("saved")
        await subject.call_action("saved")
        assert calls == ["called"]

    async def test_a_filter_for_one_use_is_gone_after_it(
        self, subject: HookRegistryProtocol
    ) -> None:
        subject.register_filter("price", lambda value: value + 1, once=True)
        assert await subject.apply_filter("price", 1) == 2
        assert await subject.apply_filter("price", 1) == 1
        assert subject.has_filter("price") is False


def add_one(value: int) -> int:
    """A filter."""
    return value + 1


class RemovalSpec(HookSpec, capability=HookCapability.REMOVAL):
    """unregister_action, unregister_filter, clear."""

    async def test_one_registration_is_removed_at_a_time(
        self, subject: HookRegistryProtocol
    ) -> None:
        calls = Calls()
        subject.register_action("saved", calls.keep)
        subject.register_action("saved", calls.keep)
        assert subject.unregister_action("saved", calls.keep) is True
        await subject.call_action("saved")
        assert calls == [{}]
        assert subject.unregister_action("saved", calls.keep) is True
        assert subject.unregister_action("saved", calls.keep) is False
        assert subject.has_action("saved") is False

    async def test_filters_are_removed_the_same_way(self, subject: HookRegistryProtocol) -> None:
        subject.register_filter("price", add_one)
        subject.register_filter("price", add_one)
        assert subject.unregister_filter("price", add_one) is True
        assert await subject.apply_filter("price", 1) == 2
        assert subject.unregister_filter("price", add_one) is True
        assert subject.unregister_filter("price", add_one) is False
        assert subject.has_filter("price") is False

    async def test_removing_an_action_leaves_filters_and_other_hooks(
        self, subject: HookRegistryProtocol
    ) -> None:
        subject.register_filter("price", add_one)
        subject.register_action("saved", add_one)
        assert subject.unregister_action("price", add_one) is False
        assert subject.unregister_filter("saved", add_one) is False
        assert subject.has_filter("price") is True
        assert subject.has_action("saved") is True

    async def test_clear_forgets_one_hook_or_all(self, subject: HookRegistryProtocol) -> None:
        for name in ("a", "b", "c"):
            subject.register_action(name, Calls().keep)
            subject.register_filter(name, add_one)
        subject.clear("a")
        assert (subject.has_action("a"), subject.has_filter("a")) == (False, False)
        assert (subject.has_action("b"), subject.has_filter("b")) == (True, True)
        subject.clear()
        assert not any(subject.has_action(name) or subject.has_filter(name) for name in "abc")

    async def test_clearing_nothing_is_fine(self, subject: HookRegistryProtocol) -> None:
        subject.clear("never heard of")
        subject.clear()


class HookConformance(ActionsSpec, FiltersSpec, OrderSpec, OnceSpec, RemovalSpec):
    """Run it on a hook registry: ``conformance_suite(HookConformance, MyRegistry)``."""
