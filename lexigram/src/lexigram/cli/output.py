"""Print results and errors: tables for people, one JSON document for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from attrs import define

from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.failures import describe_failure

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {
    **dict.fromkeys(("ok", "healthy", "booted"), "green"),
    **dict.fromkeys(("warning", "degraded", "starting", "unknown"), "yellow"),
    **dict.fromkeys(("error", "unhealthy", "failed"), "bold red"),
}


@define
class Output:
    """How this run of the command line speaks.

    With ``json`` standard output carries exactly one JSON document, also when the command
    fails; notes are left out and warnings go to standard error as always.
    """

    json: bool = False
    quiet: bool = False
    color: bool = True
    debug: bool = False

    def table(
        self,
        name: str,
        records: Iterable[Mapping[str, Any]],
        columns: Sequence[str],
        **facts: Any,
    ) -> None:
        """Records under a name. People see the named columns, programs everything.

        ``facts`` are further members of the JSON document.
        """
        rows = list(records)
        if self.json:
            self._document({name: rows, **facts})
        elif rows:
            self._draw(rows, columns)
        else:
            self.note(f"no {name}")

    def text(self, text: str, data: Mapping[str, Any]) -> None:
        """A result that people read as text and programs as ``data``."""
        if self.json:
            self._document(data)
        else:
            _write(sys.stdout, text)

    def line(self, text: str, data: Mapping[str, Any]) -> None:
        """The same in one line each, for a program that reads while the command goes on."""
        import json

        _write(sys.stdout, json.dumps(data, default=str) if self.json else text)

    def note(self, text: str) -> None:
        """What happened, for people; silent with --quiet and --json."""
        if not (self.quiet or self.json):
            _write(sys.stdout, text)

    def warn(self, text: str) -> None:
        """One line on standard error."""
        _write(sys.stderr, f"warning: {text}")

    def fail(self, error: BaseException) -> ExitCode:
        """Show an error; the exit code that goes with it."""
        failure = describe_failure(error)
        if self.debug:
            _write(sys.stderr, failure.trace)
        if self.json:
            self._document({"error": failure.data, "exit_code": int(failure.exit_code)})
        else:
            _write(sys.stderr, f"error: {failure.text}")
        return failure.exit_code

    def _document(self, data: Mapping[str, Any]) -> None:
        import json

        _write(sys.stdout, json.dumps(data, indent=2, default=str, ensure_ascii=False))

    def _draw(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column.replace("_", " ").upper(), overflow="fold")
        for row in rows:
            cells = [_cell(row[column]) for column in columns]
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
        console = self._console()
        with console.capture() as drawn:
            console.print(table)
        # rich fills the last column up with blanks.
        _write(sys.stdout, "\n".join(line.rstrip() for line in drawn.get().splitlines()))

    def _console(self) -> Console:
        from rich.console import Console

        # In a pipe a line is a record: never wrapped, so that grep and awk see it whole.
        width = None if sys.stdout.isatty() else 10_000
        console = Console(width=width, highlight=False)
        return console if self.color else Console(width=width, highlight=False, color_system=None)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return str(value)


def _write(stream: TextIO, text: str) -> None:
    stream.write(text if text.endswith("\n") else f"{text}\n")
    stream.flush()
