"""Payloads of the hooks of the AI workers: ``hooks.on(WorkerJobStartedHook, handler)``."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class WorkerJobStartedHook:
    """A worker started an attempt at a job."""

    job_type: str


@frozen(kw_only=True)
class WorkerJobCompletedHook:
    """A job completed."""

    job_type: str


@frozen(kw_only=True)
class WorkerJobFailedHook:
    """An attempt at a job failed. The queue decides about a retry."""

    job_type: str
    # empty if a handler is called without a queue
    job_id: str
    error_type: str
    error: str


@frozen(kw_only=True)
class WorkerMaintenanceRunHook:
    """A maintenance task ended, successfully or not."""

    task_type: str
