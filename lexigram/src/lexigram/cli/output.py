"""Print results and errors: tables for people, one JSON document for programs."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from attrs import define

from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.failures import describe_failure
from lexigram.config.escape import escape_json, escape_line, escape_text, indent_lines

if TYPE_CHECKING:
    from lexigram.cli.terminal import ProgressUpdate, Terminal

_STYLES = {
    **dict.fromkeys(("ok", "healthy", "booted"), "green"),
    **dict.fromkeys(("warning", "degraded", "starting", "unknown"), "yellow"),
    **dict.fromkeys(("error", "unhealthy", "failed"), "bold red"),
}


@define
class Output:
    r"""How this run of the command line speaks.

    With ``json`` standard output carries exactly one JSON document, also when the command
    fails; notes are left out and warnings go to standard error as always.

    Texts may come from anybody: control characters are shown (``\x1b``), markup is text. Of
    line feeds only those of ``text`` and of errors end a line.
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

    def facts(self, shown: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """One thing: a ``key: value`` line for each of its facts; ``data`` is for programs.

        Empty facts are left out; further lines of a value are indented.
        """
        self.text(format_facts(shown), data)

    def text(self, text: str, data: Mapping[str, Any]) -> None:
        """A result that people read as text and programs as ``data``."""
        if self.json:
            self._document(data)
        else:
            _write(sys.stdout, escape_text(text))

    def line(self, text: str, data: Mapping[str, Any]) -> None:
        """The same in one line each, for a program that reads while the command goes on."""
        import json

        document = escape_json(json.dumps(data, default=str)) if self.json else escape_line(text)
        _write(sys.stdout, document)

    def note(self, text: str) -> None:
        """One line of what happened, for people; silent with --quiet and --json."""
        if not (self.quiet or self.json):
            _write(sys.stdout, escape_line(text))

    def warn(self, text: str) -> None:
        """One line on standard error."""
        _write(sys.stderr, escape_line(f"warning: {text}"))

    def confirm(self, question: str) -> bool:
        """Ask for a yes at the terminal."""
        import typer

        return typer.confirm(escape_line(question), err=True)

    def terminal(self, *, stderr: bool = False, width: int | None = None) -> Terminal:
        """A rich console in which data cannot steer the terminal."""
        from lexigram.cli.terminal import Terminal

        return Terminal(color=self.color, stderr=stderr, width=width)

    @contextmanager
    def progress(
        self, description: str, *, at_once: bool = True
    ) -> Generator[ProgressUpdate | None, None, None]:
        """A bar for people at a terminal; None for all others: silence until the end.

        ``at_once=False``: nothing is shown before the first update.
        """
        if self.json or self.quiet or not sys.stderr.isatty():
            yield None
            return
        from lexigram.cli.terminal import draw_progress

        with draw_progress(self.terminal(stderr=True), description, at_once=at_once) as update:
            yield update

    def fail(self, error: BaseException, *, booted: bool = False) -> ExitCode:
        """Show an error; the exit code that goes with it, also for whether anything had booted."""
        failure = describe_failure(error, booted=booted)
        if self.debug:
            _write(sys.stderr, escape_text(failure.trace))
        if self.json:
            self._document({"error": failure.data, "exit_code": int(failure.exit_code)})
        else:
            _write(sys.stderr, escape_text(f"error: {failure.text}"))
        return failure.exit_code

    def _document(self, data: Mapping[str, Any]) -> None:
        import json

        document = json.dumps(data, indent=2, default=str, ensure_ascii=False)
        _write(sys.stdout, escape_json(document))

    def _draw(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column.replace("_", " ").upper(), overflow="fold")
        for row in rows:
            cells = [_cell(row[column]) for column in columns]
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
        # In a pipe a line is a record: never wrapped, so that grep and awk see it whole.
        terminal = self.terminal(width=None if sys.stdout.isatty() else 10_000)
        with terminal.capture() as drawn:
            terminal.print(table)
        # rich fills the last column up with blanks.
        _write(sys.stdout, "\n".join(line.rstrip() for line in drawn.get().splitlines()))


def format_facts(shown: Mapping[str, Any]) -> str:
    """``key: value`` lines; what is None or empty is left out."""
    return "\n".join(
        f"{escape_line(str(key))}: {indent_lines(str(value))}".replace(": \n", ":\n", 1)
        for key, value in shown.items()
        if value not in (None, "", [], {})
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return escape_line(str(value))


def _write(stream: TextIO, text: str) -> None:
    stream.write(text if text.endswith("\n") else f"{text}\n")
    stream.flush()
