"""Schedules as a module: ``ScheduleModule.configure(schedules=[...])`` once at the root."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve

from lexigram.contracts.infra.schedule.protocols import SchedulerProtocol
from lexigram.di import DynamicModule, Module, module
from lexigram.schedule._declared import Declarations, Declared
from lexigram.schedule.callbacks import Callbacks
from lexigram.schedule.config import ScheduleConfig
from lexigram.schedule.provider import ScheduleFeatureProvider, ScheduleProvider
from lexigram.schedule.scheduler import Scheduler
from lexigram.sql import Database

_EXPORTS = (ScheduleConfig, ScheduleProvider, Scheduler, SchedulerProtocol, Callbacks)


@module(providers=[ScheduleProvider], exports=_EXPORTS, is_global=True)
class ScheduleModule(Module):
    """Durable schedules on the application's database; the bare class reads ``schedule``."""

    @classmethod
    def configure(
        cls,
        config: ScheduleConfig | None = None,
        *,
        schedules: Sequence[Declared] = (),
        callbacks: Mapping[str, Callable[..., Any]] | None = None,
    ) -> DynamicModule:
        """With schedules of the code, and functions that schedules made at run time may call."""
        provider = ScheduleProvider(config, Declarations.of(schedules, callbacks))
        return _dynamic(cls, provider)

    @classmethod
    def stub(
        cls,
        config: ScheduleConfig | None = None,
        *,
        schedules: Sequence[Declared] = (),
        callbacks: Mapping[str, Callable[..., Any]] | None = None,
    ) -> DynamicModule:
        """For tests: SQLite in memory, nothing fires by itself.

        ``await scheduler.fire_due()`` and ``await callbacks.run_pending()`` are one look.
        """
        settings = evolve(config or ScheduleConfig(), run=False)
        declarations = Declarations.of(schedules, callbacks)
        return _dynamic(
            cls, ScheduleProvider(settings, declarations, database=Database("sqlite://"))
        )

    @classmethod
    def scope(
        cls, *schedules: Any, exports: Sequence[Any] = (), imports: Sequence[Any] = ()
    ) -> DynamicModule:
        """Schedules of a feature: their functions see what the importing module sees."""
        provider = ScheduleFeatureProvider(Declarations.of(schedules))
        return super().scope(provider, exports=exports, imports=imports)


def _dynamic(cls: type[ScheduleModule], provider: ScheduleProvider) -> DynamicModule:
    return DynamicModule(module=cls, providers=[provider], exports=_EXPORTS, is_global=True)
