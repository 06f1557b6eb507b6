"""The context of a command, with the type of its session."""

from __future__ import annotations

import typer

from lexigram.cli.session import Session


class CommandContext(typer.Context):
    """A ``typer.Context`` whose ``obj`` is the session; annotate the parameter of a command with it."""

    obj: Session
