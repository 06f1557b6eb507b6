"""Generated functions do what the plain path does, at any depth, and leave nothing behind."""

import asyncio
import gc
import linecache
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.di import Container, Factory, Lazy
from lexigram.di.binding import INLINE_CAP

# Random graphs


class Node:
    """Remembers what it was built from."""

    def __init__(self, name, parts):
        self.name, self.parts = name, parts


LIFETIMES = ["singleton", "scoped", "transient"]
KINDS = ["class", "function", "async", "generator", "async generator"]


@st.composite
def graphs(draw):
    """A list of (lifetime, kind, dependencies); each depends on earlier ones only."""
    size = draw(st.integers(1, 14))
    nodes = []
    for number in range(size):
        below = draw(st.lists(st.integers(0, number - 1), max_size=4)) if number else []
        nodes.append((draw(st.sampled_from(LIFETIMES)), draw(st.sampled_from(KINDS)), below))
    return nodes


def legal(nodes):
    """The same graph without what a freeze refuses: singletons on scoped or torn-down ones."""
    needs_scope = {}
    found = []
    for number, (lifetime, kind, below) in enumerate(nodes):
        kept = [item for item in below if lifetime != "singleton" or not needs_scope[item]]
        resource = "generator" in kind
        needs_scope[number] = lifetime != "singleton" and (
            lifetime == "scoped" or resource or any(needs_scope[item] for item in kept)
        )
        found.append((lifetime, kind, kept))
    return found


def register(nodes, log):
    container = Container()
    types = [type(f"Node{number}", (), {}) for number in range(len(nodes))]
    for number, (lifetime, kind, below) in enumerate(nodes):
        names = [f"p{index}" for index in range(len(below))]
        factory = factory_of(number, kind, names, log)
        factory.__annotations__ = dict(zip(names, (types[item] for item in below), strict=True))
        getattr(container, lifetime)(types[number], factory=factory)
    container.freeze()
    return container, types


def factory_of(number, kind, names, log):
    arguments = ", ".join(names)
    node = f"Node({number}, [{arguments}])"
    source = {
        "class": f"def make({arguments}): return {node}",
        "function": f"def make({arguments}): return {node}",
        "async": f"async def make({arguments}): return {node}",
        "generator": f"def make({arguments}):\n    yield {node}\n    log.append({number})",
        "async generator": f"async def make({arguments}):\n    yield {node}\n    log.append({number})",
    }[kind]
    namespace = {"Node": Node, "log": log}
    exec(source, namespace)
    return namespace["make"]


def structure(node, seen=None):
    """The shape of what was built: which node, and which parts are one and the same object."""
    seen = {} if seen is None else seen
    if id(node) in seen:
        return seen[id(node)]
    seen[id(node)] = f"#{len(seen)}"
    return (node.name, [structure(part, seen) for part in node.parts])


async def compiled(container, types, top):
    """What the generated functions build in one scope, asked for twice."""
    async with container.scope() as scope:
        both = [await scope.resolve(types[top]), await scope.resolve(types[top])]
        return structure(Node("both", both))


async def entered(container, types, top):
    """What an entry builds for two parameters."""

    async def work(one, two):
        return structure(Node("both", [one, two]))

    work.__annotations__ = {"one": types[top], "two": types[top]}
    return await container.entry(work)()


class Plainly:
    """The reference: every value by one call of ``Builder.construct_async``, nothing generated."""

    def __init__(self, container, scope):
        self.builder, self.scope, self.made = container.builder, scope, {}

    async def value(self, binding):
        from lexigram.contracts.core.di import ServiceScope
        from lexigram.di.binding import Kind

        if binding.is_singleton:
            return await self.builder.start(binding)
        if binding in self.made:
            return self.made[binding]
        built = {
            name: await self.value(edge.binding) for name, edge in binding.provider.kwargs.items()
        }
        value = await self.builder.construct_async(binding, self.scope, built)
        if binding.kind is Kind.GENERATOR:
            value = self.scope.keep(value)
        elif binding.kind is Kind.ASYNC_GENERATOR:
            value = await self.scope.enter(binding.name, value)
        if binding.lifetime is ServiceScope.SCOPED:
            self.made[binding] = value
        return value


async def plain(container, types, top):
    async with container.scope() as scope:
        plainly = Plainly(container, scope)
        binding = container.find(types[top])
        both = [await plainly.value(binding), await plainly.value(binding)]
        return structure(Node("both", both))


@given(graphs())
def test_generated_functions_build_what_the_plain_path_builds(nodes):
    nodes = legal(nodes)
    top = len(nodes) - 1

    async def compare():
        outcomes, teardowns = [], []
        for way in (plain, compiled, entered):
            log = []
            container, types = register(nodes, log)
            outcomes.append(await way(container, types, top))
            teardowns.append(list(log))
            await container.aclose()
        assert outcomes[1] == outcomes[0]
        assert outcomes[2] == outcomes[0]
        assert sorted(teardowns[1]) == sorted(teardowns[0]) == sorted(teardowns[2])

    asyncio.run(compare())


@given(graphs())
def test_resolving_synchronously_builds_the_same_where_nothing_needs_await(nodes):
    sync = [
        (lifetime, "function" if kind == "async" else kind.removeprefix("async "), below)
        for lifetime, kind, below in nodes
    ]
    nodes = legal(sync)
    top = len(nodes) - 1
    container, types = register(nodes, [])
    with container.scope() as scope:
        found = structure(Node("both", [scope.get(types[top]), scope.get(types[top])]))
    other, types = register(nodes, [])
    assert found == asyncio.run(plain(other, types, top))


async def test_values_that_are_no_objects_are_written_into_the_source(make):
    from typing import Annotated

    from lexigram.di import Inject

    class Flags:
        def __init__(
            self,
            yes: Annotated[bool, Inject("yes")],
            no: Annotated[bool, Inject("no")],
            nothing: Annotated[None, Inject("nothing")],
            empty: Annotated[str, Inject("empty")],
        ) -> None:
            self.got = (yes, no, nothing, empty)

    def register(c):
        for token, value in (("yes", True), ("no", False), ("nothing", None), ("empty", "")):
            c.bind(token, value)
        c.transient(Flags)

    container = make(register)
    assert container.get(Flags).got == (True, False, None, "")
    assert "return Flags(True, False, None, the_empty)" in container.explain(Flags)


# Depth


def layered(count, lifetime, *, last=None):
    """A chain of classes, each on the one before."""
    container = Container()
    below = None
    for number in range(count):

        def __init__(self, below) -> None:
            self.below = below

        __init__.__annotations__ = {"below": below}
        layer = type(f"Layer{number}", (), {"__init__": __init__} if below else {})
        getattr(container, lifetime)(layer)
        below = layer
    if last is not None:
        last(container, below)
    return container, below


@pytest.mark.parametrize("lifetime", LIFETIMES)
async def test_a_thousand_layers_freeze_and_build_without_recursion(lifetime):
    container, top = layered(1000, lifetime)
    container.freeze()
    async with container.scope() as scope:
        one, two = await scope.resolve(top), scope.get(top)
    assert (one is two) == (lifetime != "transient")
    depth = 0
    while hasattr(one, "below"):
        one, depth = one.below, depth + 1
    assert depth == 999


async def test_a_thousand_transients_under_a_singleton_a_factory_or_a_call_build():
    class Keeps: ...

    def last(c, top):
        def keep(layer):
            return Keeps()

        keep.__annotations__ = {"layer": top}
        c.singleton(Keeps, factory=keep)

    container, top = layered(1000, "transient", last=last)
    container.freeze()
    assert isinstance(container.get(Keeps), Keeps)
    assert isinstance(container.get(Factory[top])(), top)
    assert isinstance(container.get(Lazy[top])(), top)
    assert [type(item) for item in await container.resolve_all(top)] == [top]

    async def work(layer):
        return layer

    work.__annotations__ = {"layer": top}
    assert isinstance(await container.call(work), top)
    assert isinstance(await container.entry(work)(), top)


async def test_a_thousand_async_layers_build():
    container = Container()
    below = None
    for number in range(1000):

        async def make(below=None):
            return below

        if below is not None:

            async def make(below):
                return below

            make.__annotations__ = {"below": below}
        layer = type(f"Layer{number}", (), {})
        container.scoped(layer, factory=make)
        below = layer
    container.freeze()
    async with container.scope() as scope:
        assert await scope.resolve(below) is None


def test_compiling_stays_linear_in_wide_and_deep_graphs():
    """Each layer on all of three below: without a cap the source would double per layer."""
    container = Container()
    layers = []
    for number in range(120):
        names = [f"p{index}" for index in range(min(3, number))]
        namespace = {}
        exec(f"def make({', '.join(names)}): return ({', '.join(names)})", namespace)
        make = namespace["make"]
        make.__annotations__ = dict(zip(names, layers[-3:], strict=False))
        layer = type(f"Layer{number}", (), {})
        container.scoped(layer, factory=make)
        layers.append(layer)
    container.freeze()
    with container.scope() as scope:
        scope.get(layers[-1])
    sources = [container.explain(layer).count("\n") for layer in layers]
    assert max(sources) < 40 * INLINE_CAP


# Nothing is left behind


def ours():
    return [name for name in linecache.cache if name.startswith("<lexigram ")]


async def test_sources_are_dropped_with_their_functions():
    class Shared: ...

    class Page:
        def __init__(self, shared: Shared) -> None: ...

    async def work(page: Page) -> None: ...

    gc.collect()
    before = set(ours())
    container = Container()
    container.singleton(Shared)
    container.scoped(Page)
    container.freeze()
    entry = container.entry(work)
    await entry()
    async with container.scope() as scope:
        await scope.resolve(Page)
        scope.get(Page)
    made = set(ours()) - before
    assert len(made) >= 3
    for _ in range(10):
        with container.override(Shared, Shared()):
            await entry()
            async with container.scope() as scope:
                scope.get(Page)
    gc.collect()
    assert len(set(ours()) - before) <= len(made) + 1
    del container, entry, scope
    gc.collect()
    assert set(ours()) - before == set()


def growth(work, count):
    """Bytes that are still there after ``work`` ran ``count`` times."""
    work(100)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work(count)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


class Session: ...


class Cart:
    def __init__(self, session: Session) -> None:
        self.session = session


def scopes():
    async def session():
        yield Session()

    container = Container()
    container.scoped(Session, factory=session)
    container.scoped(Cart)
    container.freeze()
    return container


def test_two_hundred_thousand_scopes_leave_nothing_behind():
    container = Container()
    container.scoped(Session)
    container.scoped(Cart)
    container.freeze()

    def work(count):
        for _ in range(count):
            with container.scope() as scope:
                scope.get(Cart)

    assert growth(work, 200_000) < 20_000


def test_scopes_entries_and_calls_with_resources_leave_nothing_behind():
    container = scopes()

    async def handle(cart: Cart) -> None: ...

    entry = container.entry(handle)

    async def several(count):
        for _ in range(count):
            async with container.scope() as scope:
                await scope.resolve(Cart)
            await entry()
            await container.call(handle)

    with asyncio.Runner() as runner:
        assert growth(lambda count: runner.run(several(count)), 1500) < 30_000


def test_a_container_is_collected_when_nobody_holds_it():
    import weakref

    container = scopes()
    container.entry(lambda: None)()
    gone = weakref.ref(container)
    del container
    gc.collect()
    assert gone() is None
