"""Show how far an ingestion is: one live line at a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lexigram.ai.workers.cli.ingestion import Progress, Tell

if TYPE_CHECKING:
    from lexigram.cli.output import Output

_LINE_SECONDS = 2.0  # between two lines where there is no terminal


@contextmanager
def shown(output: Output, *, at_once: bool = True) -> Generator[Tell, None, None]:
    """What to call with the progress; nothing is shown with --json and --quiet.

    ``at_once=False``: nothing before there is work, for who looks again and again.
    """
    if output.json or output.quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _live(color=output.color, at_once=at_once) as tell:
            yield tell
    else:
        yield _Lines().tell


def sentence(now: Progress) -> str:
    """The figures in one line."""
    figures, seconds = now.figures, max(now.seconds, 1e-9)
    total = now.stats.total_runs + now.unchanged + now.refused
    done = now.stats.completed + now.stats.failed + now.unchanged + now.refused
    return (
        f"{done}/{total} files, {figures.stored} chunks ({figures.stored / seconds:.0f}/s), "
        f"{figures.cache_hits} cache hits, {now.stats.failed + now.refused} failed"
    )


class _Lines:
    """A line on standard error every two seconds, for logs and pipes."""

    def __init__(self) -> None:
        self._last = 0.0

    def tell(self, now: Progress) -> None:
        if now.seconds - self._last >= _LINE_SECONDS:
            self._last = now.seconds
            sys.stderr.write(sentence(now) + "\n")
            sys.stderr.flush()


@contextmanager
def _live(*, color: bool, at_once: bool) -> Generator[Tell, None, None]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, color_system="auto" if color else None)
    columns = (BarColumn(bar_width=24), TextColumn("{task.description}"), TimeElapsedColumn())
    bars = Bars(*columns, console=console, transient=True)
    bar = bars.add_task("looking at files", total=None)

    def tell(now: Progress) -> None:
        bars.start()
        bars.update(
            bar,
            description=sentence(now),
            total=now.stats.total_runs,
            completed=now.stats.completed + now.stats.failed,
        )

    if at_once:
        bars.start()
    try:
        yield tell
    finally:
        bars.stop()
