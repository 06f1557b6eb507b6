"""Tells the hooks what the workers do, and builds nothing when nobody listens."""

from __future__ import annotations

from lexigram.ai.workers.hooks import (
    WorkerJobCompletedHook,
    WorkerJobStartedHook,
    WorkerMaintenanceRunHook,
)
from lexigram.hooks import HookRegistry


class Announcer:
    """Speaks for the workers of one application; a listener that fails never fails the work."""

    def __init__(self, hooks: HookRegistry | None = None) -> None:
        self._hooks = hooks

    async def job_started(self, job_type: str) -> None:
        """An attempt at a job begins."""
        if self._hooks is not None and self._hooks.wants(WorkerJobStartedHook):
            await self._hooks.emit(WorkerJobStartedHook(job_type=job_type))

    async def job_completed(self, job_type: str) -> None:
        """A job was done."""
        if self._hooks is not None and self._hooks.wants(WorkerJobCompletedHook):
            await self._hooks.emit(WorkerJobCompletedHook(job_type=job_type))

    async def maintenance_run(self, task_type: str) -> None:
        """A maintenance task ended, well or not."""
        if self._hooks is not None and self._hooks.wants(WorkerMaintenanceRunHook):
            await self._hooks.emit(WorkerMaintenanceRunHook(task_type=task_type))
