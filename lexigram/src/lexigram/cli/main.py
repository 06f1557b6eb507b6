"""The entry of ``lexigram`` and ``lex``: run one command, and turn how it ended into a code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.main import get_command

from lexigram.cli.group import Commands, with_global_options
from lexigram.cli.output import Output
from lexigram.cli.session import Session

_ABOUT = "Make, run and look into Lexigram applications."
_EPILOG = "MODULE:APP is an Application or a function that returns one, such as shop.app:app."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _never_fail_on_encoding()
    # A mistake in the arguments is found before any option is read, and is shown as asked too.
    session = Session(Output(json="--json" in given, debug="--debug" in given))
    try:
        code: int | None = root_command().main(given, standalone_mode=False, obj=session)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the end of the process
        return session.output.fail(error)
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
    return with_global_options(get_command(app))


def _root(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _never_fail_on_encoding() -> None:
    """A terminal that cannot show an arrow gets a question mark, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
