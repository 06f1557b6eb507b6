"""Handlers run one after the other: by priority, then as they were registered."""

from __future__ import annotations

from anyio.lowlevel import checkpoint

from lexigram.contracts.core.hooks import HookPriority, HookRegistryProtocol
from lexigram.testing.conformance.hooks.spec import Calls, HookCapability, HookSpec


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
