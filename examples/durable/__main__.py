"""Submit notes, work on them here, look at what happened."""

import tempfile

import anyio

from examples.durable.app import create, group_ended
from lexigram.contracts.workflow.durable import DurableRunsProtocol, RunDocument
from lexigram.workflow.durable.fleet import DurableFleet


async def main(folder: str) -> None:
    """Three notes."""
    async with create(folder) as app:
        runs = app.container.get(DurableRunsProtocol)
        notes = [
            RunDocument(uri=f"note-{n}", source="desk", content=b"word " * n) for n in (1, 2, 3)
        ]
        group = await runs.submit(notes, name="today")
        async with runs.working():
            async for stats in runs.watch(group):
                last = stats
            await group_ended.wait()
        print(last.group_status.value, last.completed, "of", last.total_runs)
        fleet = app.container.get(DurableFleet)
        page = await fleet.overview.runs(group_id=group)
        for run in reversed(page.items):
            steps = await fleet.engine.steps(run["id"])
            attempts = [row["status"] for row in await fleet.engine.attempts(run["id"])]
            print(steps[-1].status_meta["place"], steps[-1].status_meta["words"], *attempts)


with tempfile.TemporaryDirectory() as folder:
    anyio.run(main, folder)
