"""The hot paths: what an application asks its container for, again and again."""

from __future__ import annotations

import importlib

from container import services
from harness import Plan, Section, Target, Work, measure, outcome, snippet

HAND = "hand-written"
CONTESTANTS = (
    "hand",
    "ours",
    "with_wireup",
    "with_dishka",
    "with_that_depends",
    "with_rodi",
    "with_dependency_injector",
)
WORKS = {
    "singleton": ("singleton, `get`", 1.6),
    "transient": ("transient, 3 deps", 1.4),
    "scope": ("request scope, 2 scoped + 1 singleton, async", 2.7),
    "scope entry": ("same as a compiled entry", 1.35),
    "generator": ("async generator with teardown, in a scope", 2.0),
    "generator entry": ("same as a compiled entry", 1.2),
}
NOTE = (
    "Ratios to hand-written constructor calls, the median of the ratios within each round; the "
    "quartiles are those of our ratio. An entry also awaits its handler, which the hand-written "
    "baseline does not; `calling a handler` is hand-written code that does. rodi's scope and "
    "dependency-injector's reset are synchronous, rodi has no teardown, and wireup's transients "
    "are asked of a scope that is open already."
)


async def section(plan: Plan) -> Section:
    made = [importlib.import_module(f"container.contestants.{name}") for name in CONTESTANTS]
    works = [
        Work(title, "ns", HAND, [], {"lexigram": Target(limit, HAND)})
        for title, limit in WORKS.values()
    ]
    by_work = dict(zip(WORKS, works))
    for contestant in made:
        await _enter(by_work, contestant.NAME, await contestant.statements())
    await _enter(by_work, "calling a handler", await made[0].statements_with_handler())
    await measure(works, plan)
    return Section("Resolving", NOTE, works, matrix=True)


async def _enter(by_work: dict[str, Work], name: str, statements: dict) -> None:
    for work, (source, names) in statements.items():
        case = snippet(name, source, names)
        services.check(work, await outcome(case), await outcome(case))
        by_work[work].cases.append(case)
