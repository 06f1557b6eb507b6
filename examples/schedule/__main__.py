"""Start the application, let it collect three times, ask for a report, stop."""

from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from examples.schedule.app import Orders, create
from lexigram.schedule import Scheduler


async def main() -> None:
    with TemporaryDirectory() as folder:
        async with create(Path(folder) / "example.db") as app:
            orders = app.container.get(Orders)
            scheduler = await app.container.resolve(Scheduler)
            await orders.enough.wait()
            await scheduler.pause("collect")
            await scheduler.run_now("report")
            (tick,) = await scheduler.upcoming("report", 1)
            print(f"the next report is due at {tick:%H:%M} UTC")


if __name__ == "__main__":
    anyio.run(main)
