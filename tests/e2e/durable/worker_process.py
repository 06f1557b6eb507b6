"""A process with one worker, to be killed: ``worker_process.py <url> <lease seconds> <skew>``.

Its clock is wrong by ``skew`` seconds.

Every handler writes a row when it begins and one when it ends. A step with a resource also writes
when it takes and leaves it, with its fence, so that two at once are seen.
"""

import asyncio
import random
import sys
import time
from datetime import UTC, datetime

from lexigram import clock
from lexigram.sql import Database
from lexigram.workflow.durable import (
    DurableEngine,
    LifeCycleEvent,
    NewRun,
    RunPlan,
    StepPlan,
    Terms,
    Worker,
    WorkerConfig,
)


class WrongClock:
    """The machine's clock, set wrong."""

    def __init__(self, skew):
        self._skew = skew

    def timestamp(self):
        return time.time() + self._skew

    def now(self):
        return datetime.fromtimestamp(self.timestamp(), UTC)

    def monotonic(self):
        return time.monotonic()


PAGES = RunPlan(
    workflow_id="pages",
    steps=[
        StepPlan(name="ocr", step_type="parse", handler="page", retries=1000),
        StepPlan(name="page", step_type="chunk", handler="page", retries=1000),
    ],
)


async def main():
    url, lease, skew = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    clock.install(WrongClock(skew))
    async with Database(url) as database:
        engine = DurableEngine(database, Terms(lease=lease, max_lost=10_000))

        async def note(step_id, what, fence=None):
            await database.execute(
                "INSERT INTO effects (step_id, what, fence) VALUES (?, ?, ?)",
                (step_id, what, fence),
            )

        async def work(run_step):
            await asyncio.sleep(random.random() * 0.01)
            if random.random() < 0.05:
                raise OSError("now and then")
            await note(run_step.id, "done")

        async def store(run_step):
            # What is written to keeps the highest fence and refuses lower ones.
            took = await database.execute(
                "UPDATE resource SET fence = ? WHERE id = 1 AND fence <= ?",
                (run_step.lock_fence, run_step.lock_fence),
            )
            await asyncio.sleep(random.random() * 0.01)
            await note(run_step.id, "stored" if took.row_count else "refused", run_step.lock_fence)

        async def save(run_step):
            took = await database.execute(
                "UPDATE resource SET fence = ? WHERE id = 2 AND fence <= ?",
                (run_step.lock_fence, run_step.lock_fence),
            )
            await asyncio.sleep(random.random() * 0.01)
            what = f"saved {run_step.lease_token}" if took.row_count else "refused"
            await note(run_step.id, what, run_step.lock_fence)

        async def split(run_step, ctx):
            await asyncio.sleep(random.random() * 0.01)
            if random.random() < 0.05:
                raise OSError("now and then")
            ctx.spawn(PAGES, [NewRun(params={"page": page}) for page in range(3)])
            await note(run_step.id, "done")

        async def gather(run_step, ctx):
            pages = sorted(child.status_meta["page"] for child in await ctx.children())
            assert pages == [0, 1, 2], pages
            await note(run_step.id, "done")

        async def page(run_step, page):
            await work(run_step)
            return {"page": page}

        async def stall(run_step, blocks):
            await note(run_step.id, "begun")
            if blocks:
                time.sleep(lease * 2)  # noqa: ASYNC251 - the loop is blocked: that is the test
            else:
                await asyncio.sleep(lease / 2)

        async def ended(event, ctx):
            await asyncio.sleep(random.random() * 0.05)
            async with ctx.transaction():
                await note(event.group_id, f"once {ctx.idempotency_key}", event.ending)
            await asyncio.sleep(random.random() * 0.05)

        async def called(event, ctx):
            await note(event.group_id, f"called {ctx.idempotency_key}", event.ending)
            await asyncio.sleep(random.random() * 0.05)

        async def group_end(event):
            await note(event.group_id, "group_end", event.ending)

        worker = Worker(
            WorkerConfig(consumers={"store": 2, "*": 6}, poll_interval=0.05),
            engine,
            {
                "work": work,
                "store": store,
                "save": save,
                "split": split,
                "page": page,
                "gather": gather,
                "stall": stall,
                "ended": ended,
                "called": called,
            },
            listeners={LifeCycleEvent.GROUP_END: group_end},
        )
        await worker.start()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await worker.stop(5.0)


if __name__ == "__main__":
    asyncio.run(main())
