"""``lexigram shell``: start an application and talk to it, with ``await`` at the prompt."""

from __future__ import annotations

from typing import Annotated

import typer

from lexigram.cli.session import Session

app = typer.Typer()


@app.command()
def shell(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:APP", help="Default: the one named in pyproject.toml."),
    ] = None,
) -> None:
    """Start an application and type Python at it: ``await app.container.resolve(Greeter)``."""
    from lexigram.cli.console import talk

    session: Session = ctx.obj
    application = session.load(target)
    session.configure_logging(quiet=True)
    talk(application, session.contributors, session.output)
