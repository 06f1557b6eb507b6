"""From exceptions to results, and from many results to one."""

import anyio
import pytest

from lexigram.contracts.core import result as contract
from lexigram.result import (
    Err,
    Ok,
    Result,
    UnwrapError,
    as_result,
    as_result_sync,
    collect,
    partition,
    try_catch,
    try_catch_sync,
)


def test_the_names_are_those_of_the_contract():
    assert (Ok, Err, Result, UnwrapError) == (
        contract.Ok,
        contract.Err,
        contract.Result,
        contract.UnwrapError,
    )


async def test_as_result_turns_the_named_errors_into_err_and_no_other():
    @as_result(KeyError, ValueError)
    async def find(key: str) -> int:
        """The number of a key."""
        return {"a": 1, "b": int("x") if key == "b" else 2}[key]

    assert await find("a") == Ok(1)
    assert isinstance((await find("zz")).unwrap_err(), KeyError)
    assert isinstance((await find(key="b")).unwrap_err(), ValueError)
    assert find.__name__ == "find"

    @as_result(KeyError)
    async def broken() -> None:
        raise TypeError("a mistake in the program")

    with pytest.raises(TypeError):
        await broken()


def test_as_result_sync_is_the_same_for_functions():
    @as_result_sync(ZeroDivisionError)
    def divide(a: int, b: int) -> float:
        return a / b

    assert divide(4, 2) == Ok(2.0)
    assert isinstance(divide(1, b=0).unwrap_err(), ZeroDivisionError)
    with pytest.raises(TypeError):
        divide("a", 1)


async def test_try_catch_calls_once():
    async def number(text: str, *, base: int = 10) -> int:
        return int(text, base)

    assert await try_catch((ValueError,), number, "ff", base=16) == Ok(255)
    assert isinstance((await try_catch((ValueError,), number, "x")).unwrap_err(), ValueError)
    assert try_catch_sync((ValueError,), int, "5") == Ok(5)
    assert isinstance(try_catch_sync((ValueError,), int, "x").unwrap_err(), ValueError)


async def test_cancellation_never_becomes_a_result():
    answers: list[Result[None, Exception]] = []

    async def work() -> None:
        answers.append(await try_catch((Exception,), anyio.sleep_forever))

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert answers == []


def test_collect_gives_all_values_or_the_first_error():
    assert collect([]) == Ok([])
    assert collect([Ok(1), Ok(2)]) == Ok([1, 2])
    looked_at: list[int] = []

    def results():
        for number, result in enumerate([Ok(1), Err("a"), Err("b")]):
            looked_at.append(number)
            yield result

    assert collect(results()) == Err("a")
    assert looked_at == [0, 1]


def test_partition_keeps_values_and_errors_in_order():
    assert partition([Ok(1), Err("a"), Ok(2), Err("b")]) == ([1, 2], ["a", "b"])
