"""``lexigram run``: run an application until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from lexigram.cli.context import CommandContext

app = typer.Typer()


@app.command()
def run(
    ctx: CommandContext,
    target: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:APP", help="Default: the one named in pyproject.toml."),
    ] = None,
) -> None:
    """Run an application until SIGINT or SIGTERM, then drain; a second signal ends it at once.

    --json logs one JSON object a line, --quiet warnings and errors only, --debug everything.
    """
    import anyio

    session = ctx.obj
    application = session.load(target, background=True)
    session.configure_logging()
    anyio.run(application.serve)
