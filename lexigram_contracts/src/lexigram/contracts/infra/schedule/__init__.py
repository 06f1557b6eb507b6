"""Contracts of schedules."""

from lexigram.contracts.infra.schedule.errors import (
    CronExpressionError,
    InvalidScheduleError,
    ScheduleError,
    ScheduleExistsError,
    ScheduleNotFoundError,
    ScheduleStateError,
    ScheduleTargetError,
    UnknownTimezoneError,
)
from lexigram.contracts.infra.schedule.protocols import SchedulerProtocol
from lexigram.contracts.infra.schedule.types import (
    CallbackTarget,
    Firing,
    FiringState,
    JobTarget,
    MessageTarget,
    MisfirePolicy,
    Schedule,
    ScheduleInfo,
    ScheduleOrigin,
    ScheduleState,
    ScheduleTarget,
)

__all__ = [
    "CallbackTarget",
    "CronExpressionError",
    "Firing",
    "FiringState",
    "InvalidScheduleError",
    "JobTarget",
    "MessageTarget",
    "MisfirePolicy",
    "Schedule",
    "ScheduleError",
    "ScheduleExistsError",
    "ScheduleInfo",
    "ScheduleNotFoundError",
    "ScheduleOrigin",
    "ScheduleState",
    "ScheduleStateError",
    "ScheduleTarget",
    "ScheduleTargetError",
    "SchedulerProtocol",
    "UnknownTimezoneError",
]
