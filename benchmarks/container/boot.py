"""From nothing to everything built, and how the check of the graph grows with it."""

from __future__ import annotations

import gc
import importlib
import itertools
import sys
import time
import types

from container.resolve import CONTESTANTS, HAND
from harness import Case, Plan, Section, Target, Work, measure
from lexigram.di import Container

SIZES = (250, 500, 1000)
serial = itertools.count()
clock = time.perf_counter_ns


async def sections(plan: Plan) -> list[Section]:
    return [await _boot(plan), await _freeze(plan)]


async def _boot(plan: Plan) -> Section:
    made = [importlib.import_module(f"container.contestants.{name}") for name in CONTESTANTS]
    cases = [Case(one.NAME, _booting(one.boot), loops=1) for one in made]
    cases.append(Case("lexigram, annotations as text", _booting(made[1].boot, True), loops=1))
    work = Work("200 bindings", "ms", "dependency-injector", cases, {"lexigram": Target(15)})
    await measure([work], plan, plan.few(15))
    note = (
        "200 singletons in five layers, of classes never seen before: register, check what the "
        "contestant checks, build all. dependency-injector, that-depends and rodi check little "
        "or nothing; the wiring of the first two is written out, not read from signatures. Text is "
        "what `from __future__ import annotations` makes of annotations: each must be compiled. "
        "Few layers, because the time of wireup doubles with each one (18 s at twenty)."
    )
    return Section("Boot", note, [work])


def _booting(boot, as_text: bool = False):
    async def run(loops: int) -> int:
        graph = layered(200, width=40, as_text=as_text)
        gc.collect()
        start = clock()
        built = await boot(graph)
        spent = clock() - start
        assert [type(one) for one in built] == [cls for cls, _ in graph]
        return spent

    return run


async def _freeze(plan: Plan) -> Section:
    frozen = [Case(f"{size:,} bindings", _freezing(size), loops=1) for size in SIZES]
    compiled = [Case(f"{size:,} bindings", _compiling(size), loops=1) for size in SIZES]
    smallest, largest = frozen[0].who, frozen[-1].who
    whole = Work("freeze", "ms", smallest, frozen, {largest: Target(150)})
    first = Work("compile all", "ms", smallest, compiled)
    await measure([whole, first], plan, plan.few(15))
    each = [_per_binding(work) for work in (whole, first)]
    note = (
        "Freezing layered bindings, half of them singletons, half scoped, every one "
        "standing on two of the layer below; then making the function of each of them by "
        "resolving it for the first time. Linear means that a binding costs the same in a graph "
        "four times the size."
    )
    return Section("Freezing large graphs", note, [whole, first, *each])


def _per_binding(work: Work) -> Work:
    cases = [
        Case(case.who, case.run, 1, [sample / size for sample in case.samples])
        for case, size in zip(work.cases, SIZES)
    ]
    limit = Target(1.3, work.baseline)
    return Work(f"{work.title}, per binding", "µs", work.baseline, cases, {cases[-1].who: limit})


def _freezing(size: int):
    def run(loops: int) -> int:
        container, _ = _registered(size)
        gc.collect()
        start = clock()
        container.freeze()
        return clock() - start

    return run


def _compiling(size: int):
    async def run(loops: int) -> int:
        container, graph = _registered(size)
        container.freeze()
        gc.collect()
        start = clock()
        async with container.scope() as scope:
            for cls, _ in graph:
                await scope.resolve(cls)
        return clock() - start

    return run


def _registered(size: int):
    container = Container("benchmark")
    graph = layered(size)
    for at, (cls, _) in enumerate(graph):
        # Longest-lived below: a singleton may not stand on something scoped. No transients, as
        # each layer of them would double the objects to be built.
        (container.singleton if at < size // 2 else container.scoped)(cls)
    return container, graph


def layered(
    size: int, width: int = 10, as_text: bool = False
) -> list[tuple[type, tuple[int, ...]]]:
    """New classes, each standing on two of the layer below, with the places of those two."""
    source, graph = ["from __future__ import annotations"] if as_text else [], []
    for at in range(size):
        layer, column = divmod(at, width)
        below = (layer - 1) * width
        edges = () if not layer else (below + column, below + (column + 3) % width)
        wishes = "".join(f", a{n}: K{edge}" for n, edge in enumerate(edges))
        kept = "; ".join(f"self.a{n} = a{n}" for n in range(len(edges))) or "pass"
        source.append(f"class K{at}:\n    def __init__(self{wishes}) -> None:\n        {kept}")
        graph.append(edges)
    module = types.ModuleType(f"layered{next(serial)}")
    sys.modules[module.__name__] = module  # where annotations are looked up
    code = compile("\n".join(source), module.__name__, "exec", dont_inherit=True)
    exec(code, module.__dict__)
    return [(module.__dict__[f"K{at}"], edges) for at, edges in enumerate(graph)]
