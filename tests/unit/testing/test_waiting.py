import anyio
import pytest

from lexigram.testing import wait_until


async def test_a_state_that_is_there_is_not_waited_for():
    assert await wait_until(lambda: "yes") == "yes"


async def test_a_state_another_task_brings_about_ends_the_wait():
    done = []

    async def work():
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        done.append(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        assert await wait_until(lambda: done) == [1]


async def test_an_async_predicate_is_awaited():
    turns = iter([0, None, "", 7])

    async def answer():
        await anyio.lowlevel.checkpoint()
        return next(turns)

    assert await wait_until(answer) == 7


async def test_a_state_that_never_comes_fails_with_place_and_last_answer():
    def never():
        return []

    with pytest.raises(AssertionError) as caught:
        await wait_until(never, timeout=0.05)
    text = str(caught.value)
    assert text.startswith("waited 0.05 s for ")
    assert f"never ({__file__}:{never.__code__.co_firstlineno})" in text
    assert text.endswith("its last answer was []")


async def test_a_predicate_that_hangs_is_stopped_by_the_guard():
    with pytest.raises(AssertionError, match="s for sleep_forever"):
        await wait_until(anyio.sleep_forever, timeout=0.05)


async def test_an_error_of_the_predicate_is_raised():
    with pytest.raises(KeyError):
        await wait_until(lambda: {}["missing"])


async def test_cancellation_from_outside_is_not_taken_for_the_guard():
    with anyio.move_on_after(0.05) as scope:
        await wait_until(lambda: False)
    assert scope.cancelled_caught
