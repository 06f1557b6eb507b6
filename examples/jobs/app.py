"""Handlers of a photo shop, and the application around them."""

from __future__ import annotations

import anyio

from lexigram.app import Application
from lexigram.di import Module, module, singleton
from lexigram.tasks import JobContext, JobRetry, TasksConfig, TasksModule, job


@singleton
class Disk:
    """Where photos are; the second one is missing at first."""

    def __init__(self) -> None:
        self.photos = {"cat": 40, "bird": 20}


@job("resize", max_retries=1, retry=JobRetry(base_delay=0.01))
async def resize(name: str, disk: Disk, context: JobContext) -> int:
    """Halve a photo, ten lines at a time."""
    lines = disk.photos[name]
    for done in range(0, lines, 10):
        await context.progress(done, lines, f"{name}: {done} of {lines} lines")
        await anyio.sleep(0.001)
    return lines // 2


@job("album")
async def album(names: list[str]) -> str:
    """Runs when all photos are done."""
    return f"an album of {', '.join(names)}"


@module(imports=[TasksModule.scope(resize, album)], providers=[Disk], exports=[Disk])
class Photos(Module):
    """The feature."""


def create() -> Application:
    """The application; its jobs are in memory."""
    tasks = TasksModule.configure(TasksConfig(backend="memory"))
    return Application("photos", modules=[tasks, Photos])
