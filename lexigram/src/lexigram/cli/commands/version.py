"""``lexigram version``: the installed versions."""

from __future__ import annotations

import platform

import typer

from lexigram.cli.installed import installed_distributions
from lexigram.cli.session import Session

app = typer.Typer()


@app.command()
def version(ctx: typer.Context) -> None:
    """Show the installed versions."""
    session: Session = ctx.obj
    installed = installed_distributions()
    text = "\n".join(f"{name} {number}" for name, number in installed.items())
    data = {"distributions": installed, "python": platform.python_version()}
    session.output.text(f"{text}\nPython {platform.python_version()}", data)
