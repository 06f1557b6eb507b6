"""Submit, watch, fail, retry."""

import anyio

from examples.jobs.app import Disk, album, create, resize
from lexigram.tasks import JobEndedError, JobOptions, Jobs


async def main() -> None:
    """Two photos and an album."""
    async with create() as app:
        jobs = app.container.get(Jobs)
        cat = await jobs.submit(resize, "cat")
        async for snapshot in jobs.watch(cat):
            print(f"{snapshot.percent:3.0f}% {snapshot.message}")
        print("cat:", await jobs.result(cat))
        dog = await jobs.submit(resize, "dog")
        try:
            await jobs.result(dog)
        except JobEndedError as error:
            print("dog:", error.result.status.value, error.result.error)
        app.container.get(Disk).photos["dog"] = 60
        await jobs.retry(dog)
        done = await jobs.submit(album, ["cat", "dog"], options=JobOptions(after=[cat, dog]))
        print("dog:", await jobs.result(dog))
        print(await jobs.result(done))


anyio.run(main)
