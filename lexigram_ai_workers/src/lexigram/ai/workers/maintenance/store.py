"""Protocols of the stores of task runs and statistics, and the in-memory stores."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from attrs import frozen

from lexigram.ai.workers.constants import MAX_HISTORY_SIZE
from lexigram.ai.workers.types import MaintenanceResult


@frozen(kw_only=True)
class RunSummary:
    """Number of runs and last run of a task."""

    count: int
    last: MaintenanceResult | None


class RunStore(Protocol):
    """Stores task runs, the latest MAX_HISTORY_SIZE of each task."""

    async def add(self, result: MaintenanceResult) -> None:
        """Add a run; the oldest run above the limit is deleted."""
        ...

    async def recent(self, task: str | None = None, limit: int = 10) -> Sequence[MaintenanceResult]:
        """Return the runs of one or all tasks, latest first."""
        ...

    async def summary(self, task: str) -> RunSummary:
        """Return the number of stored runs and the last run of a task."""
        ...


class StatisticsStore(Protocol):
    """Stores sums and levels by period. A period is its first second since 1970."""

    async def add(self, amounts: Mapping[str, float], period: int) -> None:
        """Add to sums."""
        ...

    async def put(self, levels: Mapping[str, float], period: int) -> None:
        """Write levels; the last level of a period is kept."""
        ...

    async def since(self, period: int) -> Sequence[Mapping[str, Any]]:
        """Return period, name and value of the periods from this one on, sorted."""
        ...

    async def delete_before(self, before: int) -> int:
        """Delete the periods before this one; returns the number of values."""
        ...


class MemoryRuns:
    """Implements RunStore in memory."""

    def __init__(self) -> None:
        self._runs: dict[str, deque[tuple[int, MaintenanceResult]]] = {}
        self._number = 0

    async def add(self, result: MaintenanceResult) -> None:
        """Add a run."""
        self._number += 1
        runs = self._runs.setdefault(result.task_name, deque(maxlen=MAX_HISTORY_SIZE))
        runs.appendleft((self._number, result))

    async def recent(self, task: str | None = None, limit: int = 10) -> Sequence[MaintenanceResult]:
        """Return runs, latest first."""
        if task is not None:
            return [result for _, result in islice(self._runs.get(task, ()), limit)]
        entries = [entry for runs in self._runs.values() for entry in islice(runs, limit)]
        latest = sorted(entries, key=lambda entry: entry[0], reverse=True)
        return [result for _, result in latest[:limit]]

    async def summary(self, task: str) -> RunSummary:
        """Return the number of runs and the last run of a task."""
        runs = self._runs.get(task)
        return (
            RunSummary(count=len(runs), last=runs[0][1]) if runs else RunSummary(count=0, last=None)
        )


class MemoryStatistics:
    """Implements StatisticsStore in memory."""

    def __init__(self) -> None:
        self._values: defaultdict[tuple[int, str], float] = defaultdict(float)

    async def add(self, amounts: Mapping[str, float], period: int) -> None:
        """Add to sums."""
        for name, amount in amounts.items():
            self._values[period, name] += amount

    async def put(self, levels: Mapping[str, float], period: int) -> None:
        """Write levels."""
        for name, level in levels.items():
            self._values[period, name] = float(level)

    async def since(self, period: int) -> Sequence[Mapping[str, Any]]:
        """Return the values of the periods from this one on."""
        return [
            {"period": at, "name": name, "value": value}
            for (at, name), value in sorted(self._values.items())
            if at >= period
        ]

    async def delete_before(self, before: int) -> int:
        """Delete the periods before this one."""
        old = [key for key in self._values if key[0] < before]
        for key in old:
            del self._values[key]
        return len(old)
