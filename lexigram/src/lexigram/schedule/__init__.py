"""Durable schedules: cron, intervals and single times, each tick fired once for all processes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.contracts.infra.schedule import SchedulerProtocol
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
    )
    from lexigram.schedule._declared import scheduled
    from lexigram.schedule.callbacks import Callbacks
    from lexigram.schedule.config import ScheduleConfig
    from lexigram.schedule.events import ScheduleFired, ScheduleMissed
    from lexigram.schedule.module import ScheduleModule
    from lexigram.schedule.provider import ScheduleProvider
    from lexigram.schedule.scheduler import Scheduler

    # Type checkers prove here that the class satisfies its contract.
    _scheduler: type[SchedulerProtocol] = Scheduler
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.contracts.infra.schedule.errors": [
                "CronExpressionError",
                "InvalidScheduleError",
                "ScheduleError",
                "ScheduleExistsError",
                "ScheduleNotFoundError",
                "ScheduleStateError",
                "ScheduleTargetError",
                "UnknownTimezoneError",
            ],
            "lexigram.contracts.infra.schedule.types": [
                "CallbackTarget",
                "Firing",
                "FiringState",
                "JobTarget",
                "MessageTarget",
                "MisfirePolicy",
                "Schedule",
                "ScheduleInfo",
                "ScheduleOrigin",
                "ScheduleState",
            ],
            "lexigram.schedule.callbacks": ["Callbacks"],
            "lexigram.schedule.config": ["ScheduleConfig"],
            "lexigram.schedule._declared": ["scheduled"],
            "lexigram.schedule.events": ["ScheduleFired", "ScheduleMissed"],
            "lexigram.schedule.module": ["ScheduleModule"],
            "lexigram.schedule.provider": ["ScheduleProvider"],
            "lexigram.schedule.scheduler": ["Scheduler"],
        },
    )

__all__ = [
    "CallbackTarget",
    "Callbacks",
    "CronExpressionError",
    "Firing",
    "FiringState",
    "InvalidScheduleError",
    "JobTarget",
    "MessageTarget",
    "MisfirePolicy",
    "Schedule",
    "ScheduleConfig",
    "ScheduleError",
    "ScheduleExistsError",
    "ScheduleFired",
    "ScheduleInfo",
    "ScheduleMissed",
    "ScheduleModule",
    "ScheduleNotFoundError",
    "ScheduleOrigin",
    "ScheduleProvider",
    "ScheduleState",
    "ScheduleStateError",
    "ScheduleTargetError",
    "Scheduler",
    "UnknownTimezoneError",
    "scheduled",
]
