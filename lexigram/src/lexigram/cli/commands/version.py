"""``lexigram version``: the installed versions."""

from __future__ import annotations

import platform

import typer

from lexigram.cli.context import CommandContext
from lexigram.cli.installed import installed_distributions

app = typer.Typer()


@app.command()
def version(ctx: CommandContext) -> None:
    """Show the installed versions."""
    session = ctx.obj
    installed = installed_distributions()
    text = "\n".join(f"{name} {number}" for name, number in installed.items())
    data = {"distributions": installed, "python": platform.python_version()}
    session.output.text(f"{text}\nPython {platform.python_version()}", data)
