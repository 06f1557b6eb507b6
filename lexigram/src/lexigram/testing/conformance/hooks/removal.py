"""What is removed is not called again; nothing to remove is no error."""

from __future__ import annotations

from lexigram.contracts.core.hooks import HookRegistryProtocol
from lexigram.testing.conformance.hooks.spec import Calls, HookCapability, HookSpec


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
