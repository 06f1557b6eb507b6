"""Keeps how runs of maintenance tasks went, and figures of periods: in memory here."""

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
    """What is known of all runs of a task."""

    count: int
    last: MaintenanceResult | None


class RunStore(Protocol):
    """Runs of tasks, the latest MAX_HISTORY_SIZE of each."""

    async def add(self, result: MaintenanceResult) -> None:
        """Keep a run; the oldest one too many is forgotten."""
        ...

    async def recent(self, task: str | None = None, limit: int = 10) -> Sequence[MaintenanceResult]:
        """Runs of one task or of all, latest first."""
        ...

    async def summary(self, task: str) -> RunSummary:
        """How often a task ran, as far as that is kept, and how the last run went."""
        ...


class FigureStore(Protocol):
    """Sums and levels of periods. A period is named by its first second since 1970."""

    async def add(self, amounts: Mapping[str, float], period: int) -> None:
        """Add to sums."""
        ...

    async def put(self, levels: Mapping[str, float], period: int) -> None:
        """Write levels; the last one of a period stays."""
        ...

    async def since(self, period: int) -> Sequence[Mapping[str, Any]]:
        """What periods from this one on have: period, name, value; in this order."""
        ...

    async def forget(self, before: int) -> int:
        """Remove periods before this one; how many figures."""
        ...


class MemoryRuns:
    """Runs of this process."""

    def __init__(self) -> None:
        self._runs: dict[str, deque[tuple[int, MaintenanceResult]]] = {}
        self._number = 0

    async def add(self, result: MaintenanceResult) -> None:
        """Keep a run."""
        self._number += 1
        kept = self._runs.setdefault(result.task_name, deque(maxlen=MAX_HISTORY_SIZE))
        kept.appendleft((self._number, result))

    async def recent(self, task: str | None = None, limit: int = 10) -> Sequence[MaintenanceResult]:
        """Runs, latest first."""
        if task is not None:
            return [result for _, result in islice(self._runs.get(task, ()), limit)]
        every = [entry for kept in self._runs.values() for entry in islice(kept, limit)]
        latest = sorted(every, key=lambda entry: entry[0], reverse=True)
        return [result for _, result in latest[:limit]]

    async def summary(self, task: str) -> RunSummary:
        """How often a task ran, and how the last run went."""
        kept = self._runs.get(task)
        return (
            RunSummary(count=len(kept), last=kept[0][1]) if kept else RunSummary(count=0, last=None)
        )


class MemoryFigures:
    """Figures of this process."""

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
        """What periods from this one on have."""
        return [
            {"period": at, "name": name, "value": value}
            for (at, name), value in sorted(self._values.items())
            if at >= period
        ]

    async def forget(self, before: int) -> int:
        """Remove periods before this one."""
        old = [key for key in self._values if key[0] < before]
        for key in old:
            del self._values[key]
        return len(old)
