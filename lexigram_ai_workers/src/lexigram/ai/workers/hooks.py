"""Payloads of the hooks of the AI workers: ``hooks.on(WorkerJobStartedHook, handler)``."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class WorkerJobStartedHook:
    """A worker took a job; told again for every attempt."""

    job_type: str


@frozen(kw_only=True)
class WorkerJobCompletedHook:
    """A job was done; one that failed is not told."""

    job_type: str


@frozen(kw_only=True)
class WorkerMaintenanceRunHook:
    """A maintenance task ended, well or not."""

    task_type: str
