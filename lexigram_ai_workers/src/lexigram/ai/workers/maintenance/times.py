"""Convert the times of maintenance tasks to schedules."""

from __future__ import annotations

from lexigram.ai.workers.types import MaintenanceTask
from lexigram.contracts.infra.schedule.types import CallbackTarget, Schedule
from lexigram.schedule.cron import checked_cron

PREFIX = "ai_workers."  # prefix of the names of schedules and callbacks


def schedule_of(task: MaintenanceTask) -> Schedule:
    """Return the schedule of a task. Raises InvalidScheduleError for an invalid interval."""
    name = PREFIX + task.name
    return Schedule(
        name=name,
        target=CallbackTarget(name=name),
        cron=task.schedule_cron,
        every=None if task.interval_seconds is None else float(task.interval_seconds),
        description=f"maintenance: {task.task_type.value}",
    )


def check_times(task: MaintenanceTask) -> None:
    """Raise CronExpressionError or InvalidScheduleError for invalid times."""
    schedule_of(task)
    if task.schedule_cron is not None:
        checked_cron(task.schedule_cron)
