"""The container table of the targets, in the order it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator

from container import boot, memory, resolve, startup
from harness import Facts, Plan, Section

TITLE = "Container"
PEERS = ("dependency-injector", "dishka", "rodi", "that-depends", "wireup")


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    yield await resolve.section(plan)
    for section in await boot.sections(plan):
        yield section
    for section in await startup.sections(plan):
        yield section
    yield memory.facts(plan)
