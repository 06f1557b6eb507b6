"""A step of a pipeline beside the plain loop that awaits the same functions."""

from __future__ import annotations

from collections.abc import AsyncIterator

from harness import Plan, Section, Target, Work, measure

from lexigram.workflow.pipeline import FunctionStep, Pipeline
from workflow.graphs import N, case, plain

NOTE = (
    "Time per step of a pipeline of 100 steps, each an async function; nothing is kept. The plain loop "
    "awaits a function. Each step notes status, result and duration."
)


async def _work(context: object) -> int:
    return 1


def _ours() -> object:
    pipeline = Pipeline("row", [FunctionStep(f"s{n}", _work) for n in range(N)])

    async def run() -> None:
        assert len((await pipeline.execute()).unwrap().step_results) == N

    return run


async def parts(plan: Plan) -> AsyncIterator[Section]:
    work = Work(
        "a step of a pipeline",
        "µs",
        "lexigram",
        [case("plain loop", plain, loops=N * 20), case("lexigram", _ours(), loops=N * 5)],
        {"lexigram": Target(5)},
    )
    await measure([work], plan, plan.few(25))
    yield Section("Pipelines", NOTE, [work])
