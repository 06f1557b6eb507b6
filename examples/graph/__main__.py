"""``python -m examples.graph start NAME``, then ``python -m examples.graph answer RUN TEXT``."""

import sys

import anyio

from examples.graph.review import DATABASE, build
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade
from lexigram.workflow.errors import HumanInputRequiredError


async def main(command: str, *arguments: str) -> None:
    async with Database(f"sqlite:///{DATABASE}") as database:
        await upgrade(database)
        engine = build(database)
        if command == "start":
            try:
                await engine.execute(arguments[0])
            except HumanInputRequiredError as pause:
                print(pause.prompt)
                print(f"run {pause.run_id}")
        else:
            run_id, answer = arguments
            print((await engine.resume(run_id, answer)).unwrap().output)
            print(engine.to_mermaid(await engine.progress(run_id)))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
