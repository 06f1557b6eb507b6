"""``python -m examples.pipeline NAME [PLAN]``: takes a customer in."""

import sys

import anyio

from examples.pipeline.onboarding import create
from lexigram.workflow import Workflows


async def main(name: str, plan: str = "standard") -> None:
    async with create() as app:
        workflows = await app.container.resolve(Workflows)
        context = (await workflows.run("onboarding", {"name": name, "plan": plan})).unwrap()
        print(context.get_result("route"))
        print(", ".join(context.get_result("notify")))


anyio.run(main, *sys.argv[1:])
