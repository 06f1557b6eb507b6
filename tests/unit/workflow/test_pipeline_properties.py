"""Random pipelines: order, failures, crashes at any point."""

from __future__ import annotations

import random

import anyio
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import Crash

from lexigram.workflow.checkpoint import InMemoryCheckpointStore
from lexigram.workflow.pipeline import FunctionStep, ParallelStep, Pipeline


@frozen
class Shape:
    """Steps by number; those inside another one have no dependencies of their own."""

    dependencies: dict[int, tuple[int, ...]]
    inner: dict[int, int]
    order: tuple[int, ...]

    @property
    def names(self):
        return {f"s{n}" for n in self.dependencies} | {
            f"s{n}.{k}" for n, count in self.inner.items() for k in range(count)
        }


@st.composite
def shapes(draw):
    count = draw(st.integers(1, 8))
    dependencies = {
        n: tuple(sorted(draw(st.sets(st.integers(0, n - 1), max_size=3)))) if n else ()
        for n in range(count)
    }
    inner = {n: draw(st.integers(2, 3)) for n in draw(st.sets(st.integers(0, count - 1)))}
    return Shape(dependencies, inner, tuple(draw(st.permutations(range(count)))))


def build(shape, log, store, *, stop=None, concurrent=False, seed=0):
    """``stop``: the number of runs of steps after which the next one is the end."""
    waits = random.Random(seed)
    running = {"count": 0}

    def work(name, value):
        async def run(context):
            if stop is not None and running["count"] >= stop:
                raise Crash
            running["count"] += 1
            log.append(name)
            for _ in range(waits.randrange(3)):
                await anyio.lowlevel.checkpoint()
            return value(context)

        return run

    def step(number):
        name = f"s{number}"
        needs = [f"s{d}" for d in shape.dependencies[number]]
        if number in shape.inner:
            parts = [
                FunctionStep(f"{name}.{k}", work(f"{name}.{k}", lambda c, k=k: k))
                for k in range(shape.inner[number])
            ]
            return ParallelStep(name, parts, needs)
        return FunctionStep(
            name, work(name, lambda c: sum(_total(c.get_result(n)) for n in needs) + 1), needs
        )

    return Pipeline("p", [step(n) for n in shape.order], store, concurrent=concurrent)


def _total(value):
    return sum(value) if isinstance(value, list) else value


@settings(max_examples=60, deadline=None)
@given(shape=shapes(), concurrent=st.booleans(), seed=st.integers(0, 99))
def test_every_step_runs_once_after_what_it_depends_on(shape, concurrent, seed):
    log = []
    pipeline = build(shape, log, None, concurrent=concurrent, seed=seed)
    context = anyio.run(pipeline.execute).unwrap()
    # A step around others shows in the log by those.
    assert sorted(log) == sorted(shape.names - {f"s{n}" for n in shape.inner})
    order = list(context.executions)
    for number, needs in shape.dependencies.items():
        assert all(order.index(f"s{n}") < order.index(f"s{number}") for n in needs)
    assert set(order) == shape.names


@settings(max_examples=60, deadline=None)
@given(shape=shapes(), concurrent=st.booleans(), stop=st.integers(0, 12), seed=st.integers(0, 99))
def test_after_a_crash_at_any_point_the_end_is_that_of_an_undisturbed_run(
    shape, concurrent, stop, seed
):
    async def main():
        expected = (await build(shape, [], None, concurrent=concurrent).execute()).unwrap()
        store, before, after = InMemoryCheckpointStore(), [], []
        pipeline = build(shape, before, store, stop=stop, concurrent=concurrent, seed=seed)
        try:
            await pipeline.execute(run_id="r")
        except BaseException as crash:
            if not _is_crash(crash):
                raise
        finished = set((await build(shape, [], store).context_of("r")).progress.finished)
        again = build(shape, after, store, concurrent=concurrent, seed=seed)
        context = (await again.resume("r")).unwrap()
        assert context.step_results == expected.step_results
        assert not finished & set(after)
        # Only what was running at the crash may run a second time.
        assert {name for name in before if name in after} <= set(before) - finished

    anyio.run(main)


def _is_crash(error):
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_crash, error.exceptions))
    return isinstance(error, KeyboardInterrupt | anyio.get_cancelled_exc_class())
