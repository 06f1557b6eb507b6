"""A process that runs a graph of ten nodes: ``worker.py <url> <shape> <first|again> <run id>…``.

Every node writes its name into a table of its own before it returns, in a transaction of its
own: a node that ran twice shows as two rows. Then it waits for a line on its input.
"""

import asyncio
import itertools
import sys

from lexigram.sql import Database, SqlConfig
from lexigram.workflow.checkpoint import SqlCheckpointStore
from lexigram.workflow.graph import WorkflowBuilder

ROW = [f"n{number}" for number in range(10)]
# A start, three branches of different length, and a join.
BRANCHES = [
    *[("n0", "n1"), ("n1", "n2"), ("n2", "n3"), ("n0", "n4"), ("n4", "n5"), ("n0", "n6")],
    *[("n3", "n7"), ("n5", "n7"), ("n6", "n7"), ("n7", "n8"), ("n8", "n9")],
]


def graph(database, shape, pause):
    builder = WorkflowBuilder(shape).reduce("order", "append")
    for name in ROW:

        async def node(state, name=name):
            await database.execute_insert("effects", {"run": state["_run_id"], "node": name})
            return {"order": [name], name: len(state.get("order", []))}

        builder.add_node(name, node)
    edges = itertools.pairwise(ROW) if shape == "row" else BRANCHES
    for source, target in edges:
        builder.add_edge(source, target)
    store = Told(database, pause)
    return builder.set_entry("n0").set_terminal("n9").build(checkpoints=store)


class Told(SqlCheckpointStore):
    """Says after each write what is stored, and waits to be told to go on: a place to be killed."""

    def __init__(self, database, pause):
        super().__init__(database)
        self.pause = pause

    async def append(self, checkpoint, run=None):
        await super().append(checkpoint, run)
        await self.pause(",".join(checkpoint.nodes))


async def main():
    url, shape, how, *run_ids = sys.argv[1:]

    async def pause(nodes):
        print(nodes, flush=True)
        if how == "first":
            await asyncio.to_thread(sys.stdin.readline)

    async with Database(SqlConfig(url=url)) as database:
        engine = graph(database, shape, pause)
        if how == "first":
            await engine.execute("x", run_id=run_ids[0])
            return
        for run_id in run_ids:
            result = (await engine.recover(run_id)).unwrap()
            order = result.final_state["order"]
            print("end", ",".join(order), result.iterations, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
