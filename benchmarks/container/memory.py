"""A million scopes: what is still there afterwards.

Started in a process of its own (``python -m container.memory SCOPES``), so that nothing another
benchmark left behind counts.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from harness import Facts, Plan

LIMIT_KIB = 512  # of resident memory: the allocator's own play, well below a byte per scope


def facts(plan: Plan) -> Facts:
    scopes = 100_000 if plan.quick else 1_000_000
    done = subprocess.run(
        [sys.executable, "-m", "container.memory", str(scopes)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    head = ["scopes", "of", "blocks before", "after", "RSS before", "after", "growth", "target", ""]
    lines = [_line(scopes, item) for item in json.loads(done.stdout)]
    note = (
        "Each kind after 20,000 scopes to warm up, in one process. Blocks are what Python's "
        "allocator counts (`sys.getallocatedblocks`), RSS is what the system counts."
    )
    return Facts("Memory over many scopes", note, head, lines)


def _line(scopes: int, item: dict) -> list[str]:
    growth = item["rss"][1] - item["rss"][0]
    steady = growth <= LIMIT_KIB and item["blocks"][1] - item["blocks"][0] < 1000
    return [
        f"{scopes:,}",
        item["kind"],
        *(f"{value:,}" for value in item["blocks"]),
        *(f"{value:,} KiB" for value in item["rss"]),
        f"{growth:+,} KiB",
        "none",
        "met" if steady else "MISSED",
    ]


async def main(scopes: int) -> None:
    from container.contestants.ours import wired
    from container.services import Checkout, LiveCheckout, handle_live

    container = wired()
    entry = container.entry(handle_live)

    async def plain(count: int) -> None:
        for _ in range(count):
            async with container.scope() as scope:
                await scope.resolve(Checkout)

    async def torn_down(count: int) -> None:
        for _ in range(count):
            async with container.scope() as scope:
                await scope.resolve(LiveCheckout)

    async def raced(count: int) -> None:
        """Two tasks ask for the same service; one waits for the other."""
        for _ in range(count // 50):
            async with container.scope() as scope:
                await asyncio.gather(scope.resolve(LiveCheckout), scope.resolve(LiveCheckout))

    async def entered(count: int) -> None:
        for _ in range(count):
            await entry()

    kinds = {
        "resolve": plain,
        "resolve with teardown": torn_down,
        "two tasks racing (a fiftieth)": raced,
        "entry with teardown": entered,
    }
    report = []
    for kind, run in kinds.items():
        await run(20_000)
        before = _sizes()
        await run(scopes)
        after = _sizes()
        report.append({"kind": kind, "blocks": [before[0], after[0]], "rss": [before[1], after[1]]})
    print(json.dumps(report))


def _sizes() -> tuple[int, int]:
    gc.collect()
    return sys.getallocatedblocks(), _resident_kib()


def _resident_kib() -> int:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
