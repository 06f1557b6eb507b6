"""The order of steps, and everything that is wrong with a definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from lexigram.workflow._limits import is_time_limit
from lexigram.workflow.errors import GraphProblem
from lexigram.workflow.pipeline.base import PipelineStep


def problems_of(steps: Sequence[PipelineStep]) -> list[GraphProblem]:
    """All problems of a definition, each with a fix."""
    return [*_names(steps), *_dependencies(steps), *_cycles(steps), *_time_limits(steps)]


def ordered(steps: Sequence[PipelineStep]) -> list[PipelineStep]:
    """Dependencies first; of those that may run next, the first of the list.

    Steps on a cycle are left out.
    """
    known = {step.name for step in steps}
    waiting = list(steps)
    done: set[str] = set()
    order: list[PipelineStep] = []
    while waiting:
        ready = (s for s in waiting if all(n in done for n in s.dependencies if n in known))
        step = next(ready, None)
        if step is None:
            return order
        waiting.remove(step)
        order.append(step)
        done.add(step.name)
    return order


def every(steps: Sequence[PipelineStep]) -> Iterator[PipelineStep]:
    """The steps and those inside them."""
    for step in steps:
        yield step
        yield from every(step.inner_steps)


def _names(steps: Sequence[PipelineStep]) -> Iterator[GraphProblem]:
    counts = Counter(step.name for step in every(steps))
    for name, count in counts.items():
        if count > 1:
            yield GraphProblem(
                f"{count} steps are called {name!r}",
                "give each another name; steps inside of others count too",
            )
        if not name:
            yield GraphProblem("a step has no name", "give it one")


def _dependencies(steps: Sequence[PipelineStep]) -> Iterator[GraphProblem]:
    names = [step.name for step in steps]
    inside = {step.name for step in every(steps)} - set(names)
    for step in steps:
        for name in step.dependencies:
            if name in inside:
                fix = "depend on the step around it"
                yield GraphProblem(
                    f"step {step.name!r} depends on {name!r}, which is inside another step", fix
                )
            elif name not in names:
                there = ", ".join(map(repr, (n for n in names if n != step.name))) or "none"
                yield GraphProblem(
                    f"step {step.name!r} depends on {name!r}, which is unknown",
                    f"add it or correct the name; the other steps are {there}",
                )
    for step in every(steps):
        for inner in step.inner_steps:
            if inner.dependencies:
                yield GraphProblem(
                    f"step {inner.name!r} inside {step.name!r} has dependencies",
                    "give them to the step around it: that one decides when it runs",
                )


def _cycles(steps: Sequence[PipelineStep]) -> Iterator[GraphProblem]:
    placed = {id(step) for step in ordered(steps)}
    stuck = [step for step in steps if id(step) not in placed]
    if stuck:
        names = " → ".join(_around(stuck))
        yield GraphProblem(
            f"the steps {names} wait for each other", "take one of these dependencies away"
        )


def _time_limits(steps: Sequence[PipelineStep]) -> Iterator[GraphProblem]:
    for step in every(steps):
        if not is_time_limit(step.timeout):
            yield time_limit_problem(f"step {step.name!r}", step.timeout)


def time_limit_problem(what: str, seconds: float | None) -> GraphProblem:
    """Of a step or a pipeline whose timeout is no time."""
    return GraphProblem(
        f"the timeout of {what} is {seconds!r} s", "give more than 0, or None for no limit"
    )


def _around(stuck: Sequence[PipelineStep]) -> list[str]:
    """One cycle among steps that all wait for another of them; its first name again at the end."""
    by_name = {step.name: step for step in stuck}
    path = [stuck[0].name]
    while True:
        following = next(name for name in by_name[path[-1]].dependencies if name in by_name)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
