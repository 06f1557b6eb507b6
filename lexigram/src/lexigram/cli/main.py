"""The entry of ``lexigram`` and ``lex``: run one command, and turn how it ended into a code."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.main import get_command

from lexigram.cli.group import Commands, complete_command
from lexigram.cli.output import Output
from lexigram.cli.session import Session
from lexigram.config.escape import indent_lines

_ABOUT = "Create, run and inspect Lexigram applications."
_EPILOG = "MODULE:APP is an Application or a function that returns one, such as shop.app:app."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    # A mistake in the arguments is found before any option is read, and is shown as asked too.
    session = Session(Output(json="--json" in given, debug="--debug" in given))
    try:
        code: int | None = root_command().main(given, standalone_mode=False, obj=session)
    except SystemExit:
        raise  # a command of click ends so
    except BaseException as error:  # noqa: BLE001 - the end of the process, which says why
        return session.output.fail(error, booted=session.has_booted)
    return code or 0


def root_command() -> Any:
    """The whole command line as one command; pass ``obj=Session()`` to run it."""
    app = typer.Typer(
        name="lexigram",
        cls=Commands,
        help=_ABOUT,
        epilog=_EPILOG,
        invoke_without_command=True,
        rich_markup_mode=None,  # rich costs 120 ms; help must answer at once
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    return complete_command(get_command(app))


def _root(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _prepare_streams() -> None:
    """Write every line at once, also into a file or a pipe, and never fail on an encoding."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A handler's print must not wait for the end of a process that runs for weeks, and a
            # terminal that cannot show an arrow gets a question mark, not a traceback.
            reconfigure(errors="replace", line_buffering=True)
    if logging.lastResort is not None:  # what is logged before a command sets logging up
        logging.lastResort.setFormatter(_PlainFormatter())


class _PlainFormatter(logging.Formatter):
    """The message alone, secrets and control characters made harmless."""

    def format(self, record: logging.LogRecord) -> str:
        from lexigram.config.redact import redact_text

        return indent_lines(redact_text(super().format(record)))
