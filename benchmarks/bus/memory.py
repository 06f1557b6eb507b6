"""The bus in memory beside asyncio.Queue, which promises nothing, and taskiq in memory."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
from harness import Case, Facts, Plan, Run, Section, Target, Work, measure

from lexigram.contracts.queue import BusMessage
from lexigram.queue import BusOptions, InMemoryQueue

PAYLOAD = {"id": 0, "t": 1234567.123456, "kind": "order.created", "data": ""}
PAYLOAD["data"] = "x" * (256 - len(orjson.dumps(PAYLOAD)))  # bytes, as in the table of targets
HERE = Path(__file__).resolve().parents[1]
RAW = "asyncio.Queue"
RAW_JSON = "asyncio.Queue + orjson"
PREFETCH = 1000  # as many as the plain queue holds
MANY = 1_000_000
LOOPS = 20_000


async def sections(plan: Plan) -> AsyncIterator[Section | Facts]:
    yield await _throughput(plan)
    yield await _memory(plan)


async def _throughput(plan: Plan) -> Section:
    shared = await _queue(share=True)
    copied = await _queue(share=False)
    tasks = await _taskiq()
    built = Work(
        "messages built beforehand, no listener",
        "µs",
        RAW,
        [
            Case(RAW, _raw(lambda: PAYLOAD, lambda item: item), LOOPS),
            Case("lexigram", _ours(shared), LOOPS),
            Case("taskiq in memory", tasks, 500),
        ],
        {"lexigram": Target(1 / 0.35, RAW)},
    )
    copies = Work(
        "with a JSON round trip",
        "µs",
        RAW_JSON,
        [
            Case(RAW_JSON, _raw(lambda: orjson.dumps(PAYLOAD), orjson.loads), LOOPS),
            Case("lexigram", _ours(copied), LOOPS),
        ],
        {"lexigram": Target(2.0, RAW_JSON)},
    )
    await measure([built, copies], plan, rounds=plan.few(21))
    await shared.close()
    await copied.close()
    return Section(
        "Memory: publish, handle, acknowledge",
        "One publisher, one group, a handler that counts; 256 bytes of JSON. Ours leases, counts "
        "deliveries, acknowledges and checks for retries, expiry and listeners; the plain queue "
        "does nothing of that.",
        [built, copies],
    )


def _raw(pack: Any, unpack: Any) -> Run:
    async def run(loops: int) -> int:
        queue: asyncio.Queue[Any] = asyncio.Queue(PREFETCH)
        handled = 0

        async def handle(message: Any) -> None:
            nonlocal handled
            handled += 1

        async def publish() -> None:
            for _ in range(loops):
                await queue.put(pack())

        async def consume() -> None:
            while handled < loops:
                await handle(unpack(await queue.get()))
                queue.task_done()

        start = time.perf_counter_ns()
        await asyncio.gather(publish(), consume())
        return time.perf_counter_ns() - start

    return run


class _Counted(InMemoryQueue):
    """A queue with one consumer that counts."""

    handled = 0
    wanted = 0
    done = asyncio.Event()

    async def handle(self, message: BusMessage) -> None:
        self.handled += 1
        if self.handled == self.wanted:
            self.done.set()


async def _queue(*, share: bool) -> _Counted:
    queue = _Counted(options=BusOptions(share=share, prefetch=PREFETCH))
    await queue.connect()
    await queue.subscribe("t", queue.handle)
    return queue


def _ours(queue: _Counted) -> Run:
    messages = [BusMessage(topic="t", payload=PAYLOAD) for _ in range(LOOPS)]

    async def run(loops: int) -> int:
        queue.handled, queue.wanted, queue.done = 0, loops, asyncio.Event()
        start = time.perf_counter_ns()
        for message in messages[:loops]:
            await queue.publish("t", message)
        await queue.done.wait()
        return time.perf_counter_ns() - start

    return run


async def _taskiq() -> Run:
    from taskiq import InMemoryBroker

    broker = InMemoryBroker(max_async_tasks=100)
    handled = 0

    @broker.task
    async def handle(message: dict[str, Any]) -> None:
        nonlocal handled
        handled += 1

    await broker.startup()

    async def run(loops: int) -> int:
        start = time.perf_counter_ns()
        for _ in range(loops):
            await handle.kiq(PAYLOAD)
        await broker.wait_all()
        return time.perf_counter_ns() - start

    return run


async def _memory(plan: Plan) -> Facts:
    number = MANY // 10 if plan.quick else MANY
    command = [sys.executable, "-m", "bus.memory", str(number)]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=HERE, capture_output=True, text=True, check=True
    )
    before, after, seconds = done.stdout.split()
    grown = int(after) - int(before)
    return Facts(
        f"Memory: {number:,} messages of 1 kB",
        "Resident memory of a process, after the first 10,000 messages and after all of them; the "
        "payloads alone would be that many kB.",
        ["messages", "after 10,000", "after all", "seconds", "target", ""],
        [
            [
                f"{number:,}",
                f"{int(before) // 1024} MB",
                f"{int(after) // 1024} MB",
                seconds,
                "≤ 20 MB more",
                "met" if grown <= 20 * 1024 else "MISSED",
            ]
        ],
    )


async def _flow(number: int) -> None:
    queue = await _queue(share=False)
    started = time.perf_counter()

    async def send(many: int) -> int:
        queue.handled, queue.wanted, queue.done = 0, many, asyncio.Event()
        for _ in range(many):
            await queue.publish("t", BusMessage(payload={"data": "x" * 1000}))
        await queue.done.wait()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = await send(10_000)
    after = await send(number - 10_000)
    await queue.close()
    print(before, after, f"{time.perf_counter() - started:.1f}")


if __name__ == "__main__":
    asyncio.run(_flow(int(sys.argv[1])))
