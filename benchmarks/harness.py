"""Measure contestants side by side: interleaved rounds, medians, ratios, targets, tables."""

from __future__ import annotations

import asyncio
import gc
import inspect
import platform
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

Run = Callable[[int], "int | Awaitable[int]"]  # loops -> nanoseconds

UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}


@dataclass(frozen=True)
class Plan:
    """How much to measure. One work takes about cases x rounds x slice."""

    rounds: int = 41
    slice_ms: float = 5.0
    quick: bool = False

    def few(self, rounds: int) -> int:
        """Rounds of something slow, such as starting a process."""
        return max(5, rounds // 5) if self.quick else rounds


QUICK = Plan(rounds=15, slice_ms=1.5, quick=True)


@dataclass(frozen=True)
class Target:
    """A promise: at most ``limit``, times the contestant ``of`` or in the unit of the work."""

    limit: float
    of: str | None = None

    def text(self, unit: str) -> str:
        return f"≤ {self.limit:g}x" if self.of else f"≤ {self.limit:g} {unit}"


@dataclass
class Case:
    """One contestant at one work."""

    who: str
    run: Run
    loops: int = 0  # 0: found by calibration; the run of a slow thing does it once
    samples: list[float] = field(default_factory=list)  # nanoseconds of one loop, per round

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def best(self) -> float:
        return min(self.samples)


@dataclass
class Work:
    """What the contestants do, who the ratios refer to, and what we promised."""

    title: str
    unit: str
    baseline: str
    cases: list[Case]
    targets: Mapping[str, Target] = field(default_factory=dict)

    def case(self, who: str) -> Case | None:
        return next((case for case in self.cases if case.who == who), None)

    def ratio(self, case: Case, of: str = "") -> float:
        """Median of the ratios within each round: what slows a round slows both sides."""
        other = self.case(of or self.baseline)
        assert other is not None
        pairs = zip(case.samples, other.samples, strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)

    def spread(self, case: Case) -> tuple[float, float]:
        """Lower and upper quartile of the ratio."""
        other = self.case(self.baseline)
        assert other is not None
        pairs = zip(case.samples, other.samples, strict=True)
        low, _, high = statistics.quantiles((mine / theirs for mine, theirs in pairs), n=4)
        return low, high

    def show(self, nanoseconds: float) -> str:
        return f"{number(nanoseconds / UNITS[self.unit])} {self.unit}"

    def verdict(self, case: Case) -> str:
        """Met or missed; an absolute figure may be met in the quietest round only."""
        target = self.targets.get(case.who)
        if target is None:
            return ""
        if target.of:
            return "met" if self.ratio(case, target.of) <= target.limit else "MISSED"
        limit = target.limit * UNITS[self.unit]
        if case.median <= limit:
            return "met"
        return "met in the best round" if case.best <= limit else "MISSED"


def snippet(who: str, source: str, names: Mapping[str, Any]) -> Case:
    """A case from statements that leave their outcome in ``result``; ``await`` is welcome."""
    is_async = "await " in source or "async " in source
    body = "\n".join(f"        {line}" for line in source.splitlines())
    text = (
        f"{'async ' if is_async else ''}def run(loops):\n"
        f"    start = clock()\n"
        f"    for _ in repeat(None, loops):\n{body}\n"
        f"    return clock() - start\n"
        f"{'async ' if is_async else ''}def once():\n"
        f"    for _ in repeat(None, 1):\n{body}\n"
        f"    return result\n"
    )
    namespace = {"clock": time.perf_counter_ns, "repeat": repeat, **names}
    exec(compile(text, f"<benchmark {who}>", "exec"), namespace)
    case = Case(who, namespace["run"])
    case.once = namespace["once"]  # type: ignore[attr-defined]
    return case


async def outcome(case: Case) -> Any:
    """Do the very statements once and return their result, to check that they do the work."""
    done = case.once()  # type: ignore[attr-defined]
    return await done if inspect.isawaitable(done) else done


async def measure(works: Sequence[Work], plan: Plan, rounds: int = 0) -> None:
    """All cases of all works in one run: each round shuffles works, and cases within a work.

    The contestants of a work stay next to each other in time, so that a neighbour who takes
    the processor for a while slows all of them.
    """
    for work in works:
        for case in work.cases:
            if not case.loops:
                case.loops = await _calibrate(case, plan.slice_ms * 1e6)
    gc.collect()
    gc.freeze()
    order = list(works)
    for _ in range(rounds or plan.rounds):
        random.shuffle(order)
        for work in order:
            for case in random.sample(work.cases, len(work.cases)):
                case.samples.append(await _spend(case, case.loops) / case.loops)
    gc.unfreeze()


async def _calibrate(case: Case, slice_ns: float) -> int:
    loops = 10
    while (spent := await _spend(case, loops)) < slice_ns / 4:
        loops *= 3
    return max(1, int(loops * slice_ns / spent))


async def _spend(case: Case, loops: int) -> int:
    spent = case.run(loops)
    return await spent if inspect.isawaitable(spent) else spent


@dataclass
class Section:
    """Some works under one heading, as a matrix (one line per work) or a list of cases."""

    title: str
    note: str
    works: list[Work]
    matrix: bool = False
    subject: str = "lexigram"
    skipped: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        parts = [f"### {self.title}", self.note]
        if self.matrix:
            parts.append(self._matrix())
        else:
            parts += [_listing(work) for work in self.works]
        parts += [f"*Not measured: {reason}.*" for reason in self.skipped]
        return "\n\n".join(part for part in parts if part)

    def _matrix(self) -> str:
        others = list(
            dict.fromkeys(
                case.who
                for work in self.works
                for case in work.cases
                if case.who not in (self.subject, work.baseline)
            )
        )
        head = ["work", "target", self.subject, "", "quartiles", *others, "hand-written"]
        lines = [self._matrix_line(work, others) for work in self.works]
        return table(head, lines)

    def _matrix_line(self, work: Work, others: Sequence[str]) -> list[str]:
        mine = work.case(self.subject)
        base = work.case(work.baseline)
        assert base is not None
        line = [work.title, "", "", "", ""]
        if mine is not None:
            target = work.targets.get(self.subject)
            low, high = work.spread(mine)
            line = [
                work.title,
                target.text(work.unit) if target else "",
                f"**{work.ratio(mine):.2f}x**",
                work.verdict(mine),
                f"{low:.2f}–{high:.2f}",
            ]
        for who in others:
            case = work.case(who)
            line.append(f"{work.ratio(case):.1f}x" if case else "–")
        return [*line, work.show(base.median)]


def _listing(work: Work) -> str:
    head = [work.title, "median", "best", f"x of {work.baseline}", "target", ""]
    lines = []
    for case in work.cases:
        target = work.targets.get(case.who)
        lines.append(
            [
                case.who,
                work.show(case.median),
                work.show(case.best),
                f"{work.ratio(case):.2f}x",
                target.text(work.unit) if target else "",
                work.verdict(case),
            ]
        )
    return table(head, lines)


@dataclass
class Facts:
    """A table that is not made of timings; each line ends with its target and verdict."""

    title: str
    note: str
    head: list[str]
    lines: list[list[str]]
    skipped: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        parts = [f"### {self.title}", self.note]
        if self.lines:
            parts.append(table(self.head, self.lines))
        parts += [f"*Not measured: {reason}.*" for reason in self.skipped]
        return "\n\n".join(part for part in parts if part)


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table, aligned for people who read it in a terminal."""
    rows = [list(head), *map(list, lines)]
    widths = [max(3, *(len(row[at]) for row in rows)) for at in range(len(head))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows]
    text.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in text)


def number(value: float) -> str:
    """Three digits that matter."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def machine() -> dict[str, str]:
    """What a reader must know to compare: never a host name or a path."""
    import os

    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",  # of other programs, when asked before a run
    }


def as_dict(part: Section | Facts) -> dict[str, Any]:
    """The same figures for programs."""
    if isinstance(part, Facts):
        return {
            "title": part.title,
            "head": part.head,
            "lines": part.lines,
            "skipped": part.skipped,
        }
    return {
        "title": part.title,
        "skipped": part.skipped,
        "works": [
            {
                "title": work.title,
                "baseline": work.baseline,
                "cases": [
                    {
                        "who": case.who,
                        "median_ns": round(case.median, 1),
                        "best_ns": round(case.best, 1),
                        "rounds": len(case.samples),
                        "ratio": round(work.ratio(case), 3),
                        "target": target.text(work.unit) if target else None,
                        "verdict": work.verdict(case) or None,
                    }
                    for case in work.cases
                    for target in [work.targets.get(case.who)]
                ],
            }
            for work in part.works
        ],
    }


def run(coroutine: Any) -> Any:
    """One event loop for a whole run, as an application has."""
    if sys.version_info < (3, 11):
        sys.exit("the benchmarks need Python 3.11")
    return asyncio.run(coroutine)
