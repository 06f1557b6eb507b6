"""Show the progress of an ingestion: a live line at a terminal, log lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lexigram.ai.workers.cli.ingestion import Progress, ProgressCallback

if TYPE_CHECKING:
    from lexigram.cli.output import Output

_LINE_SECONDS = 2.0  # between two lines without a terminal


@contextmanager
def display_progress(
    output: Output, *, at_once: bool = True
) -> Generator[ProgressCallback, None, None]:
    """Yield a callback for progress; it prints nothing with --json and --quiet.

    ``at_once=False``: nothing is shown before the first progress, for repeated runs of --watch.
    """
    if output.json or output.quiet:
        yield lambda _: None
        return
    with output.progress("scanning files", at_once=at_once) as update:
        if update is None:
            yield _Lines().report
        else:
            yield lambda now: update(
                format_progress(now),
                completed=now.stats.completed + now.stats.failed,
                total=now.stats.total_runs,
            )


def format_progress(now: Progress) -> str:
    """Format the progress as one line."""
    statistics, seconds = now.statistics, max(now.seconds, 1e-9)
    total = now.stats.total_runs + now.unchanged + now.refused
    done = now.stats.completed + now.stats.failed + now.unchanged + now.refused
    return (
        f"{done}/{total} files, {statistics.stored} chunks ({statistics.stored / seconds:.0f}/s), "
        f"{statistics.cache_hits} cache hits, {now.stats.failed + now.refused} failed"
    )


class _Lines:
    """Prints a line to standard error every two seconds, for logs and pipes."""

    def __init__(self) -> None:
        self._last = 0.0

    def report(self, now: Progress) -> None:
        if now.seconds - self._last >= _LINE_SECONDS:
            self._last = now.seconds
            sys.stderr.write(format_progress(now) + "\n")
            sys.stderr.flush()
