"""Actions listen in and cannot break the work."""

from __future__ import annotations

from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from lexigram.contracts.core.hooks import HookRegistryProtocol
from lexigram.testing.conformance.hooks.spec import Calls, HookCapability, HookSpec


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
