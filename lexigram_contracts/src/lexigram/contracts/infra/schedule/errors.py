"""What can go wrong with schedules."""

from __future__ import annotations

from lexigram.contracts.core.errors import DomainError, NotFoundError


class ScheduleError(DomainError):
    """A schedule could not be kept, changed or fired."""

    code = "LEX_ERR_SCHED_001"


class InvalidScheduleError(ScheduleError, ValueError):
    """A schedule makes no sense as it is written; nothing was stored."""

    code = "LEX_ERR_SCHED_002"
    is_retryable = False


class CronExpressionError(InvalidScheduleError):
    """A cron expression is wrong; the text names the field and why."""

    code = "LEX_ERR_SCHED_003"


class UnknownTimezoneError(InvalidScheduleError):
    """There is no time zone of that name."""

    code = "LEX_ERR_SCHED_004"


class ScheduleNotFoundError(ScheduleError, NotFoundError):
    """There is no schedule of that name."""

    code = "LEX_ERR_SCHED_005"


class ScheduleExistsError(ScheduleError):
    """The name is taken by another schedule."""

    code = "LEX_ERR_SCHED_006"


class ScheduleStateError(ScheduleError):
    """The schedule is not in a state, or not of an origin, that allows this."""

    code = "LEX_ERR_SCHED_007"


class ScheduleTargetError(ScheduleError):
    """What a schedule starts is not there: no queue, no outbox, no such callback, or it refused."""

    code = "LEX_ERR_SCHED_008"
