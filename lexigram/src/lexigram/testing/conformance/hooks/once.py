"""A handler for one use is used once, however many call."""

from __future__ import annotations

import anyio
from anyio.lowlevel import checkpoint

from lexigram.contracts.core.hooks import HookRegistryProtocol
from lexigram.testing.conformance.hooks.spec import Calls, HookCapability, HookSpec


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
