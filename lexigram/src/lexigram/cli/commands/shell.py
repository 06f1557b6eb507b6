"""``lexigram shell``: start an application and talk to it, with ``await`` at the prompt."""

from __future__ import annotations

from typing import Annotated

import typer

from lexigram.cli.context import CommandContext

app = typer.Typer()


@app.command()
def shell(
    ctx: CommandContext,
    target: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:APP", help="Default: the one named in pyproject.toml."),
    ] = None,
) -> None:
    """Start an application and type Python at it: ``await app.container.resolve(Greeter)``."""
    from lexigram.cli.console import talk

    session = ctx.obj
    application = session.load(target)
    session.configure_logging(quiet=True)
    talk(application, session.contributors, session.output)
