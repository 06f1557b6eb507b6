"""What rich draws for the command line: data in it is text, never markup or an escape sequence."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from lexigram.config.escape import escape_line, escape_text


class ProgressUpdate(Protocol):
    """Shows how far the work is; without a total the bar only moves."""

    def __call__(
        self, description: str, *, completed: float = 0, total: float | None = None
    ) -> None: ...


class Terminal(Console):
    """A rich console for texts of others: square brackets are text, control characters are shown."""

    def __init__(self, *, color: bool, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(
            stderr=stderr,
            width=width,
            color_system="auto" if color else None,
            markup=False,
            emoji=False,
            highlight=False,
        )

    def render(self, *args: Any, **kwargs: Any) -> Iterable[Segment]:
        """What rich made of a renderable; only what rich itself steers the cursor with is kept."""
        for segment in super().render(*args, **kwargs):
            if segment.control:
                yield segment
            else:
                yield Segment(escape_text(segment.text), segment.style)


@contextmanager
def draw_progress(
    terminal: Terminal, description: str, *, at_once: bool
) -> Generator[ProgressUpdate, None, None]:
    """A bar that is gone at the end; ``at_once=False``: it appears with the first update."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    bars = Progress(*columns, console=terminal, transient=True)
    bar = bars.add_task(escape_line(description), total=None)

    def update(description: str, *, completed: float = 0, total: float | None = None) -> None:
        bars.start()
        bars.update(bar, description=escape_line(description), completed=completed, total=total)

    if at_once:
        bars.start()
    try:
        yield update
    finally:
        bars.stop()
