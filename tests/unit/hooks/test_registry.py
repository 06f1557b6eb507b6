"""Actions listen and never break the observed; filters change and may refuse."""

import logging

import anyio
import pytest
from attrs import frozen
from tests.failures import TIME_LIMIT, WAYS_TO_FAIL, never_return

from lexigram.concurrency import CallAbortedError, CallTimeoutError
from lexigram.contracts.core.hooks import HookPriority, HookRegistryProtocol
from lexigram.hooks import HookRegistry


@frozen(kw_only=True)
class Paid:
    amount: int


@frozen(kw_only=True)
class PaidTwice(Paid):
    pass


@pytest.fixture
def hooks() -> HookRegistry:
    return HookRegistry()


def test_the_registry_keeps_the_contract(hooks):
    contract: HookRegistryProtocol = hooks
    assert isinstance(contract, HookRegistryProtocol)


async def test_sync_and_async_actions_run_by_priority_and_then_in_order(hooks):
    calls: list[str] = []

    async def late(**_):
        await anyio.lowlevel.checkpoint()
        calls.append("late")

    hooks.register_action("x", late, HookPriority.LATE)
    hooks.register_action("x", lambda **_: calls.append("first"))
    hooks.register_action("x", lambda **_: calls.append("second"))
    hooks.register_action("x", lambda **_: calls.append("early"), 10)
    await hooks.call_action("x", anything=1)
    assert calls == ["early", "first", "second", "late"]


async def test_actions_get_the_keyword_arguments(hooks):
    got = {}
    hooks.register_action("x", got.update)
    await hooks.call_action("x", hook_name="free to use", n=1)
    assert got == {"hook_name": "free to use", "n": 1}


async def test_a_failing_action_is_logged_with_traceback_and_the_others_run(hooks, caplog):
    calls: list[int] = []

    def broken(**_):
        raise KeyError("oops")

    hooks.register_action("x", broken)
    hooks.register_action("x", lambda **_: calls.append(1))
    with caplog.at_level(logging.ERROR, logger="lexigram.hooks"):
        await hooks.call_action("x")
    assert calls == [1]
    [record] = caplog.records
    assert record.getMessage().startswith("hook x: handler test_a_failing_action")
    assert record.exc_info[0] is KeyError


async def test_a_failing_filter_reaches_the_caller(hooks):
    def refuse(value):
        raise PermissionError("no")

    hooks.register_filter("x", refuse)
    with pytest.raises(PermissionError):
        await hooks.apply_filter("x", 1)


async def test_filters_are_chained(hooks):
    async def double(value, *, times=1):
        return value * 2 * times

    hooks.register_filter("x", double, HookPriority.LATE)
    hooks.register_filter("x", lambda value, **_: value + 1)
    assert await hooks.apply_filter("x", 1) == 4
    assert await hooks.apply_filter("x", 1, times=10) == 40
    assert await hooks.apply_filter("other", "unchanged") == "unchanged"


async def test_cancellation_passes_through(hooks):
    started = anyio.Event()

    async def hang(**_):
        started.set()
        await anyio.sleep_forever()

    hooks.register_action("x", hang)
    async with anyio.create_task_group() as group:
        group.start_soon(hooks.call_action, "x")
        await started.wait()
        group.cancel_scope.cancel()


async def test_a_handler_for_one_use_runs_once_also_when_called_side_by_side(hooks):
    calls: list[int] = []

    async def slow(**_):
        await anyio.lowlevel.checkpoint()

    hooks.register_action("x", slow, 0)
    hooks.register_action("x", lambda **_: calls.append(1), once=True)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(hooks.call_action, "x")
    assert calls == [1]
    hooks.register_filter("f", lambda value: value + 1, once=True)
    assert [await hooks.apply_filter("f", 1) for _ in range(2)] == [2, 1]
    assert not hooks.has_filter("f")


async def test_changes_during_a_run_count_from_the_next_run_on(hooks):
    calls: list[str] = []

    def second(**_):
        calls.append("second")

    def first(**_):
        calls.append("first")
        hooks.unregister_action("x", second)
        hooks.register_action("x", lambda **_: calls.append("third"))

    hooks.register_action("x", first)
    hooks.register_action("x", second)
    await hooks.call_action("x")
    assert calls == ["first", "second"]


async def test_handlers_can_be_removed_one_registration_at_a_time(hooks):
    calls: list[int] = []

    def handler(**_):
        calls.append(1)

    hooks.register_action("x", handler)
    hooks.register_action("x", handler)
    await hooks.call_action("x")
    assert calls == [1, 1]
    assert hooks.unregister_action("x", handler)
    assert hooks.has_action("x")
    assert hooks.unregister_action("x", handler)
    assert not hooks.unregister_action("x", handler)
    assert not hooks.has_action("x")
    hooks.register_filter("x", handler)
    assert hooks.unregister_filter("x", handler)
    assert not hooks.unregister_filter("x", handler)


async def test_decorators_register_and_return_the_function(hooks):
    @hooks.action("x", priority=5, once=True)
    def act(**_):
        calls.append("act")

    @hooks.filter("x")
    def change(value):
        return value + 1

    calls: list[str] = []
    await hooks.call_action("x")
    await hooks.call_action("x")
    assert calls == ["act"]
    assert await hooks.apply_filter("x", 1) == 2
    assert change(1) == 2


async def test_typed_hooks_get_exactly_their_payload(hooks):
    got: list[Paid] = []
    assert not hooks.wants(Paid)
    hooks.on(Paid, got.append)
    assert hooks.wants(Paid)
    assert not hooks.wants(PaidTwice)
    await hooks.emit(Paid(amount=3))
    await hooks.emit(PaidTwice(amount=4))
    assert got == [Paid(amount=3)]
    assert hooks.off(Paid, got.append)
    assert not hooks.off(Paid, got.append)


async def test_a_failing_typed_handler_is_logged_by_class_name(hooks, caplog):
    async def broken(payload: Paid) -> None:
        raise ValueError(payload.amount)

    hooks.on(Paid, broken)
    await hooks.emit(Paid(amount=3))
    assert "hook Paid: handler " in caplog.text


def test_clear_forgets_one_hook_or_all(hooks):
    for name in ("a", "b"):
        hooks.register_action(name, print)
        hooks.register_filter(name, print)
    hooks.on(Paid, print)
    assert hooks.names() == ["Paid", "a", "b"]
    hooks.clear("a")
    hooks.clear("never")
    assert hooks.names() == ["Paid", "b"]
    hooks.clear(Paid)
    assert not hooks.wants(Paid)
    hooks.clear()
    assert hooks.names() == []


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_an_action_that_fails_in_any_way_is_logged_and_the_others_run(hooks, caplog, fail):
    calls: list[int] = []

    async def broken(**_):
        await fail()

    hooks.register_action("x", broken, timeout=TIME_LIMIT)
    hooks.register_action("x", lambda **_: calls.append(1))
    await hooks.call_action("x")

    assert calls == [1]
    [record] = caplog.records
    assert issubclass(record.exc_info[0], Exception)


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_filter_that_fails_in_any_way_is_an_error_for_its_caller(hooks, fail):
    async def broken(value):
        await fail()

    hooks.register_filter("x", broken, timeout=TIME_LIMIT)
    with pytest.raises((ValueError, CallAbortedError, CallTimeoutError)):
        await hooks.apply_filter("x", 1)


async def test_decorators_and_handlers_of_payloads_take_a_time_limit_too(hooks, caplog):
    @hooks.action("x", timeout=TIME_LIMIT)
    async def hang(**_):
        await never_return()

    @hooks.filter("x", timeout=TIME_LIMIT)
    async def hang_too(value):
        await never_return()

    hooks.on(Paid, hang_too, timeout=TIME_LIMIT)
    await hooks.call_action("x")
    await hooks.emit(Paid(amount=1))
    with pytest.raises(CallTimeoutError, match="hang_too took more than"):
        await hooks.apply_filter("x", 1)
    assert [record.exc_info[0] for record in caplog.records] == [CallTimeoutError] * 2
