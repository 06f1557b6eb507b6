"""``python -m examples.durable_graph work``, ``send NAME``, ``answer RUN TEXT``."""

import sys

import anyio

from examples.durable_graph.parcel import DATABASE, build
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade
from lexigram.workflow.durable import DurableEngine, OrchestratedRuns, Worker, WorkerConfig


async def main(command: str, *arguments: str) -> None:
    async with Database(f"sqlite:///{DATABASE}") as database:
        await upgrade(database)
        engine = DurableEngine(database)
        runs = OrchestratedRuns(engine)
        runs.register("parcel", build)
        if command == "work":
            worker = Worker(WorkerConfig(poll_interval=0.1), engine, runs.handlers)
            await worker.start()
            print("works", flush=True)
            await worker.ended()
        elif command == "send":
            run_id = await runs.submit("parcel", arguments[0])
            while not (questions := (await runs.status(run_id)).questions):  # noqa: ASYNC110 - others work
                await anyio.sleep(0.1)
            print(f"run {run_id}: {questions[0].prompt}")
        else:
            run_id, answer = int(arguments[0]), arguments[1]
            await runs.answer(run_id, answer)
            print((await runs.ended(run_id)).state["output"])


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
