"""A process with one worker for graphs and sagas, to be killed.

``orchestrated_process.py <url> <lease seconds> <log file> <slots>``. Every node writes a line when
it begins and one when it ends; ``hold`` and ``left``/``right`` wait for a file to appear.
"""

import asyncio
import os
import sys
from itertools import pairwise
from pathlib import Path

from lexigram.sql import Database
from lexigram.workflow.durable import (
    DurableEngine,
    OrchestratedRuns,
    StepTerms,
    Terms,
    Worker,
    WorkerConfig,
)
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.saga import AbstractSaga, saga_step

NODES = [f"node-{number}" for number in range(1, 11)]
WATCH = 0.01


class Work:
    """What nodes do: a line in the log, and waiting for a gate where there is one."""

    def __init__(self, log):
        self.log = Path(log)

    def note(self, line):
        # One write with O_APPEND: lines of several processes do not mix.
        with self.log.open("ab", buffering=0) as file:
            file.write(f"{line} {os.getpid()}\n".encode())

    async def do(self, name):
        self.note(f"begin {name}")
        gate = self.log.with_name(f"gate-{name}")
        while gate.with_suffix(".closed").exists():  # noqa: ASYNC110 - another process opens it
            await asyncio.sleep(WATCH)
        self.note(f"end {name}")

    def node(self, name):
        async def run(state):
            await self.do(name)
            return {"ran": [name]}

        return run


def chain(work):
    """Ten nodes, one after the other."""
    builder = WorkflowBuilder("chain").reduce("ran", "append")
    for name in NODES:
        builder.add_node(name, work.node(name))
    for source, target in pairwise(NODES):
        builder.add_edge(source, target)
    return builder.set_entry(NODES[0]).set_terminal(NODES[-1])


def branches(work):
    """Two branches, a question, the end."""
    builder = WorkflowBuilder("branches").reduce("ran", "append")
    for name in ("left", "right", "start", "end"):
        builder.add_node(name, work.node(name))
    builder.add_node("ask", human_prompt="go on?", output_key="said")
    for name in ("left", "right"):
        builder.add_edge("start", name).add_edge(name, "ask")
    return builder.add_edge("ask", "end").set_entry("start").set_terminal("end")


def wide():
    """A node for each of eight pieces, then a loop of three turns."""

    async def square(state):
        await asyncio.sleep(0.02)
        return {"squares": [state["number"] ** 2]}

    async def count(state):
        await asyncio.sleep(0.02)
        return {"n": state.get("n", 0) + 1}

    async def begin(state):
        return {}

    builder = WorkflowBuilder("wide").reduce("squares", "append")
    builder.add_node("begin", begin).add_node("square", square).add_node("count", count)
    builder.add_node("end", begin)
    builder.add_edge("begin", "square", each=lambda state: [{"number": n} for n in range(8)])
    builder.add_edge("square", "count")
    builder.add_edge("count", "count", condition=lambda state: state["n"] < 3)
    builder.add_edge("count", "end", condition=lambda state: state["n"] >= 3)
    return builder.set_entry("begin").set_terminal("end")


def sagas(work):
    """A saga that fails at its last step."""

    class Trip(AbstractSaga):
        def get_id(self):
            return "trip"

        @saga_step(compensation="undo_fly")
        async def fly(self):
            await work.do("fly")

        async def undo_fly(self):
            await work.do("undo-fly")

        @saga_step(compensation="undo_sleep")
        async def sleep(self):
            await work.do("sleep")

        async def undo_sleep(self):
            await work.do("undo-sleep")

        @saga_step(max_retries=0)
        async def eat(self):
            raise OSError("no food")

    return Trip


def registered(engine, log):
    """What every process of this fleet knows."""
    work = Work(log)
    runs = OrchestratedRuns(engine)
    runs.register("chain", chain(work))
    runs.register("branches", branches(work))
    runs.register("trip", sagas(work))
    runs.register("wide", wide, terms=StepTerms(retries=3))
    return runs


async def main():
    url, lease, log, slots = sys.argv[1], float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    async with Database(url) as database:
        engine = DurableEngine(database, Terms(lease=lease))
        config = WorkerConfig(consumers={"*": slots}, poll_interval=0.05)
        worker = Worker(config, engine, registered(engine, log).handlers)
        await worker.start()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await worker.stop(5.0)


if __name__ == "__main__":
    asyncio.run(main())
