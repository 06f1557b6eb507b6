"""Schedules written in code: ``@scheduled`` functions and ``Schedule`` objects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from attrs import frozen

from lexigram.contracts.core.di import ContainerRegistrarProtocol, ContainerResolverProtocol
from lexigram.contracts.infra.schedule.errors import InvalidScheduleError, ScheduleExistsError
from lexigram.contracts.infra.schedule.types import (
    CallbackTarget,
    Firing,
    MisfirePolicy,
    Schedule,
)
from lexigram.di.signature import parameters
from lexigram.schedule.callbacks import Callback
from lexigram.schedule.definition import written
from lexigram.schedule.ticks import Calendar

F = TypeVar("F", bound=Callable[..., Any])
Declared: TypeAlias = Schedule | Callable[..., Any]

_MARK = "__lexigram_schedule__"


def scheduled(
    cron: str | None = None,
    *,
    every: float | timedelta | None = None,
    at: datetime | None = None,
    name: str | None = None,
    timezone: str = "UTC",
    start: datetime | None = None,
    end: datetime | None = None,
    jitter: float = 0.0,
    misfire: MisfirePolicy = MisfirePolicy.FIRE_ONCE,
    grace: float = 60.0,
    catch_up: int = 100,
) -> Callable[[F], F]:
    """Call an async function by a schedule, in one of the running processes, at least once.

    Its parameters are injected; one annotated ``Firing`` gets the tick. The function stays as
    it is; ``ScheduleModule.configure(schedules=[f])`` or ``ScheduleModule.scope(f)`` makes it
    run. The name, by default module and function, is what the schedule is known by.
    """

    def mark(function: F) -> F:
        if not inspect.iscoroutinefunction(function):
            raise InvalidScheduleError(
                f"{function!r} is not an async function", hint="write `async def`"
            )
        known = name or f"{function.__module__}.{function.__qualname__}"
        schedule = Schedule(
            name=known,
            target=CallbackTarget(name=known),
            cron=cron,
            every=every.total_seconds() if isinstance(every, timedelta) else every,
            at=at,
            timezone=timezone,
            start=start,
            end=end,
            jitter=jitter,
            misfire=misfire,
            grace=grace,
            catch_up=catch_up,
            description=(inspect.getdoc(function) or "").partition("\n")[0],
        )
        _check(schedule)
        setattr(function, _MARK, schedule)
        return function

    return mark


@frozen(kw_only=True)
class Declarations:
    """What a module declares: schedules, and the functions that callbacks are."""

    schedules: tuple[Schedule, ...] = ()
    functions: Mapping[str, Callable[..., Any]] = {}

    @classmethod
    def of(
        cls, declared: Iterable[Declared], callbacks: Mapping[str, Callable[..., Any]] | None = None
    ) -> Declarations:
        """Check everything now: a wrong cron expression is an error of the line that has it."""
        schedules: dict[str, Schedule] = {}
        functions = dict(callbacks or {})
        for each in declared:
            schedule = each if isinstance(each, Schedule) else getattr(each, _MARK, None)
            if not isinstance(schedule, Schedule):
                raise InvalidScheduleError(
                    f"{each!r} is no schedule", hint="give Schedule(...) or a @scheduled function"
                )
            if not isinstance(each, Schedule):
                functions[schedule.name] = each
            _check(schedule)
            if schedules.setdefault(schedule.name, schedule) is not schedule:
                raise ScheduleExistsError(
                    f"two schedules are named {schedule.name!r}",
                    details={"schedule": schedule.name},
                    hint="give one of them another name",
                )
        return cls(schedules=tuple(schedules.values()), functions=functions)

    def check(self, container: ContainerRegistrarProtocol) -> None:
        """Have what the functions ask for checked with the graph, when it is frozen."""
        for name, function in self.functions.items():
            role = f"schedule {name!r}"
            container.check_entry(function, given=_firing_names(function), role=role)

    def callbacks(self, container: ContainerResolverProtocol) -> dict[str, Callback]:
        """The functions with their parameters injected, each call in a scope of its own."""
        return {name: _injected(container, function) for name, function in self.functions.items()}


def _check(schedule: Schedule) -> None:
    Calendar.of(schedule)
    written(schedule)


def _firing_names(function: Callable[..., Any]) -> list[str]:
    """Names of the parameters that get the tick."""
    return [item.name for item in parameters(function) if item.key is Firing]


def _injected(container: ContainerResolverProtocol, function: Callable[..., Any]) -> Callback:
    wanted = _firing_names(function)
    entry: Any = container.entry
    call = entry(function, given=wanted)

    async def run(firing: Firing) -> object:
        return await call(*[firing] * len(wanted))

    return run
