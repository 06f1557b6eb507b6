"""``lexigram run``: run an application until it is told to stop."""

from __future__ import annotations

from typing import Annotated

import typer

from lexigram.cli.session import Session

app = typer.Typer()


@app.command()
def run(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:APP", help="Default: the one named in pyproject.toml."),
    ] = None,
) -> None:
    """Run an application until SIGINT or SIGTERM, then drain; a second signal ends it at once.

    --json logs one JSON object a line, --quiet warnings and errors only, --debug everything.
    """
    import anyio

    session: Session = ctx.obj
    session.target = target
    application = session.application
    session.configure_logging()
    anyio.run(application.serve)
