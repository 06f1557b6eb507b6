"""A node of a graph: in a row of 100, in a fan-out of 100, and kept in SQLite."""

from __future__ import annotations

import asyncio
import operator
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, TypedDict

from harness import Case, Plan, Section, Target, Work, measure

from lexigram.sql import Database
from lexigram.sql.migrate import upgrade
from lexigram.workflow.checkpoint import SqlCheckpointStore
from lexigram.workflow.config import GraphConfig
from lexigram.workflow.graph import AbstractWorkflowNode, WorkflowBuilder

os.environ.setdefault("LANGSMITH_TRACING", "false")
N = 100
AT_ONCE = 20
NOTE = (
    "Time per node. Every node adds one to a number in the state and the end is checked. The plain "
    "loop awaits a function; gather makes a task for each."
)
KEPT_NOTE = (
    "Both on a WAL file with synchronous=NORMAL, which is our default and not LangGraph's (FULL), so it "
    "is set there. *step* stores each step before the next begins: our default, LangGraph's "
    "durability=sync. *async* stores while the next steps run: LangGraph's default. *20 at once* is 20 "
    "runs side by side, each step by step, whose steps share transactions; the target is for that."
)


class Add(AbstractWorkflowNode):
    async def execute(self, state):
        return {"x": state.get("x", 0) + 1}


class One(AbstractWorkflowNode):
    writes = frozenset({"x"})

    async def execute(self, state):
        return {"x": 1}


def our_row(store=None, **settings):
    builder = WorkflowBuilder("row", GraphConfig(**settings))
    for i in range(N):
        builder.add_node(f"n{i}", Add(f"n{i}"))
        if i:
            builder.add_edge(f"n{i - 1}", f"n{i}")
    return builder.set_entry("n0").set_terminal(f"n{N - 1}").build(checkpoints=store)


def our_fan():
    builder = WorkflowBuilder("fan").reduce("x", operator.add)
    builder.add_node("s", One("s")).add_node("e", One("e"))
    for i in range(N):
        builder.add_node(f"n{i}", One(f"n{i}")).add_edge("s", f"n{i}").add_edge(f"n{i}", "e")
    return builder.set_entry("s").set_terminal("e").build()


def langgraph_row(saver=None):
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        x: int

    async def node(state):
        return {"x": state["x"] + 1}

    graph = StateGraph(State)
    for i in range(N):
        graph.add_node(f"n{i}", node)
        graph.add_edge(f"n{i - 1}" if i else START, f"n{i}")
    graph.add_edge(f"n{N - 1}", END)
    return graph.compile(checkpointer=saver)


def langgraph_fan():
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        x: Annotated[int, operator.add]

    async def node(state):
        return {"x": 1}

    graph = StateGraph(State)
    graph.add_node("s", node)
    graph.add_node("e", node)
    graph.add_edge(START, "s")
    for i in range(N):
        graph.add_node(f"n{i}", node)
        graph.add_edge("s", f"n{i}")
    graph.add_edge([f"n{i}" for i in range(N)], "e")
    graph.add_edge("e", END)
    return graph.compile()


def pydantic_row():
    from pydantic_graph import GraphBuilder

    graph = GraphBuilder(input_type=int, output_type=int)

    def made(i):
        async def step(ctx):
            return ctx.inputs + 1

        return graph.step(step, node_id=f"n{i}")

    steps = [made(i) for i in range(N)]
    graph.add(graph.edge_from(graph.start_node).to(steps[0]))
    for one, other in zip(steps, steps[1:]):
        graph.add(graph.edge_from(one).to(other))
    graph.add(graph.edge_from(steps[-1]).to(graph.end_node))
    return graph.build()


def pydantic_fan():
    from pydantic_graph import GraphBuilder, reduce_sum

    graph = GraphBuilder(input_type=int, output_type=int)

    async def source(ctx):
        return [1] * N

    async def work(ctx):
        return ctx.inputs

    first, each = graph.step(source, node_id="s"), graph.step(work, node_id="w")
    join = graph.join(reduce_sum, initial=0)
    graph.add(
        graph.edge_from(graph.start_node).to(first),
        graph.edge_from(first).map().to(each),
        graph.edge_from(each).to(join),
        graph.edge_from(join).to(graph.end_node),
    )
    return graph.build()


def burr_row():
    from burr.core import ApplicationBuilder, action

    def made():
        @action(reads=["x"], writes=["x"])
        async def add(state):
            return state.update(x=state["x"] + 1)

        return add

    actions = {f"n{i}": made() for i in range(N)}

    async def run():
        app = (
            ApplicationBuilder()
            .with_actions(**actions)
            .with_transitions(*((f"n{i}", f"n{i + 1}") for i in range(N - 1)))
            .with_state(x=0)
            .with_entrypoint("n0")
            .build()
        )
        started = time.perf_counter_ns()
        _, _, state = await app.arun(halt_after=[f"n{N - 1}"])
        assert state["x"] == N
        return time.perf_counter_ns() - started  # without building, which it needs for every run

    return run


def case(who: str, run: Callable[[], Awaitable[Any]], nodes: int = N, loops: int = 0) -> Case:
    async def spend(times: int) -> int:
        runs = max(1, times // nodes)
        started, own = time.perf_counter_ns(), 0
        for _ in range(runs):
            own += (await run()) or 0
        spent = own or time.perf_counter_ns() - started
        return int(spent / (runs * nodes) * times)

    return Case(who, spend, loops or nodes)


def ours(engine, expected: int):
    async def run():
        assert (await engine.execute("i")).unwrap().final_state["x"] == expected

    return run


def theirs(graph, expected: int, **options):
    count = iter(range(10**9))

    async def run():
        settings = {"configurable": {"thread_id": str(next(count))}, "recursion_limit": 1000}
        assert (await graph.ainvoke({"x": 0}, settings, **options))["x"] == expected

    return run


def pydantic(graph, expected: int):
    async def run():
        assert await graph.run(inputs=0) == expected

    return run


async def noop() -> None:
    return None


async def plain() -> None:
    for _ in range(N):
        await noop()


async def gathered() -> None:
    await asyncio.gather(*(noop() for _ in range(N)))


async def parts(plan: Plan) -> AsyncIterator[Section]:
    row = Work(
        "a node in a row",
        "µs",
        "lexigram",
        [
            case("plain loop", plain, loops=N * 20),
            case("lexigram", ours(our_row(), N), loops=N * 5),
            case("LangGraph", theirs(langgraph_row(), N)),
            case("pydantic-graph", pydantic(pydantic_row(), N)),
            case("Burr", burr_row()),
        ],
        {"lexigram": Target(5)},
    )
    fan = Work(
        "a node in a fan-out",
        "µs",
        "lexigram",
        [
            case("asyncio.gather", gathered, loops=N * 5),
            case("lexigram", ours(our_fan(), N + 2), loops=N * 5),
            case("LangGraph", theirs(langgraph_fan(), N + 2)),
            case("pydantic-graph", pydantic(pydantic_fan(), N)),
        ],
        {"lexigram": Target(20)},
    )
    rounds = plan.few(25)
    await measure([row, fan], plan, rounds)
    yield Section("Graphs", NOTE, [row, fan])
    yield await _kept(plan)


async def _kept(plan: Plan) -> Section:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    folder = tempfile.mkdtemp()
    try:
        async with (
            Database(f"sqlite:///{folder}/ours.db") as database,
            AsyncSqliteSaver.from_conn_string(f"{folder}/theirs.db") as saver,
        ):
            await upgrade(database)
            await saver.setup()
            await saver.conn.execute("PRAGMA synchronous = NORMAL")
            await _check_equal_settings(database, saver)
            store = SqlCheckpointStore(database)
            single = ours(our_row(store), N)

            async def many():
                await asyncio.gather(*(single() for _ in range(AT_ONCE)))

            work = Work(
                "a node kept in SQLite",
                "µs",
                "lexigram, step",
                [
                    case("lexigram, step", single),
                    case("LangGraph, step", theirs(langgraph_row(saver), N, durability="sync")),
                    case(f"lexigram, {AT_ONCE} at once", many, N * AT_ONCE),
                    case(
                        "lexigram, async",
                        ours(our_row(store, checkpoint_durability="async"), N),
                    ),
                    case("LangGraph, async", theirs(langgraph_row(saver), N, durability="async")),
                ],
                {f"lexigram, {AT_ONCE} at once": Target(60)},
            )
            await measure([work], plan, plan.few(11))
    finally:
        shutil.rmtree(folder)
    return Section("Graphs that are kept", KEPT_NOTE, [work])


async def _check_equal_settings(database, saver) -> None:
    """The note says that both write with the same settings; do not print it if that is not so."""
    for name, expected in (("journal_mode", "wal"), ("synchronous", 1)):
        mine = await database.run(lambda c: c.exec_driver_sql(f"PRAGMA {name}").fetchone()[0])
        async with saver.conn.execute(f"PRAGMA {name}") as cursor:
            (other,) = await cursor.fetchone()
        assert mine == other == expected, (name, mine, other)
