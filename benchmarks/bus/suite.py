"""The bus: publish, handle, acknowledge; one file per broker beside the raw client and the peers.

A file of this folder that has ``sections(plan)`` is found by itself.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from pathlib import Path

from harness import Facts, Plan, Section

TITLE = "Bus"
PEERS = ("faststream", "hiredis", "nats-py", "orjson", "redis", "taskiq", "taskiq-redis")


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    for file in sorted(Path(__file__).parent.glob("*.py")):
        broker = importlib.import_module(f"bus.{file.stem}")
        if hasattr(broker, "sections"):
            async for part in broker.sections(plan):
                yield part
