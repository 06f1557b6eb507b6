"""TransformPipe: one value through several functions."""

import pytest

from lexigram.workflow.core.pipe import TransformPipe

pytestmark = pytest.mark.anyio


async def double(value, **kwargs):
    return value * 2


async def test_the_example_of_the_specification():
    seen = []
    pipe = (
        TransformPipe[int]()
        .pipe(lambda r: r + 1)
        .pipe_if(lambda r: r > 10, double)
        .tap(seen.append)
        .catch(lambda error, value: -1)
    )
    assert await pipe.execute(1) == 2
    assert await pipe.execute(10) == 22
    assert seen == [2, 22]


async def test_every_method_gives_a_new_pipe_and_leaves_the_old_one():
    start = TransformPipe().pipe(double)
    longer = start.pipe(double).tap(print).pipe_if(bool, double).catch(lambda e, v: v)
    assert (len(start), len(longer)) == (1, 4)
    assert await start.execute(3) == 6
    assert repr(longer) == "TransformPipe(steps=4)"
    assert TransformPipe()
    assert await TransformPipe().execute("as it is") == "as it is"


async def test_catch_gets_the_value_of_the_failing_step_and_ends_the_pipe():
    ran = []

    def broken(value):
        raise ValueError("no")

    async def handler(error, value):
        return f"{error} for {value}"

    pipe = TransformPipe().pipe(double).pipe(broken).pipe(ran.append).catch(handler)
    assert await pipe.execute(2) == "no for 4"
    assert ran == []


async def test_without_catch_the_error_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError):
        await TransformPipe([lambda v: 1 / v]).execute(0)


async def test_keyword_arguments_go_to_steps_and_not_to_taps_and_predicates():
    def add(value, *, by):
        return value + by

    pipe = TransformPipe().pipe(add).pipe_if(lambda v: True, add).tap(lambda v: None)
    assert await pipe.execute(1, by=10) == 21
