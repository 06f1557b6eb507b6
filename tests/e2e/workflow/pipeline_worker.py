"""A process that runs a pipeline of eight steps: ``pipeline_worker.py <url> <first|again> <run>…``.

Every step writes its name into a table of its own before it returns: one that ran twice shows as
two rows. After each stored step the process waits for a line on its input: a place to be killed.
"""

import asyncio
import sys

from lexigram.sql import Database, SqlConfig
from lexigram.workflow.checkpoint import SqlCheckpointStore
from lexigram.workflow.pipeline import ConditionalStep, FunctionStep, ParallelStep, Pipeline


class Told(SqlCheckpointStore):
    """Says after each write which steps are stored, and waits to be told to go on."""

    def __init__(self, database, pause):
        super().__init__(database)
        self.pause = pause

    async def append(self, checkpoint, run=None):
        await super().append(checkpoint, run)
        await self.pause(",".join(checkpoint.nodes))


def pipeline(database, store):
    def work(name):
        async def run(context):
            await database.execute_insert("effects", {"run": context.run_id, "node": name})
            return len(context.step_results)

        return FunctionStep(name, run)

    return Pipeline(
        "row",
        [
            work("s0"),
            work("s1"),
            ConditionalStep("s2", lambda c: c.get_result("s1") == 1, work("yes"), work("no")),
            work("s3"),
            ParallelStep("s4", [work("left"), work("right")]),
            work("s5"),
        ],
        store,
    )


async def main():
    url, how, *run_ids = sys.argv[1:]

    async def pause(nodes):
        print(nodes, flush=True)
        if how == "first":
            await asyncio.to_thread(sys.stdin.readline)

    async with Database(SqlConfig(url=url)) as database:
        made = pipeline(database, Told(database, pause))
        if how == "first":
            await made.execute(run_id=run_ids[0])
            return
        for run_id in run_ids:
            context = (await made.resume(run_id)).unwrap()
            print("end", ",".join(sorted(context.step_results)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
