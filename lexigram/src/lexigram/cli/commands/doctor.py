"""``lexigram doctor``: check the set-up of this machine and folder."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lexigram.cli.context import CommandContext
from lexigram.cli.exit_codes import ExitCode

app = typer.Typer()


@app.command()
def doctor(
    ctx: CommandContext,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:APP",
            help="An application to check too. Default: the one named in pyproject.toml.",
        ),
    ] = None,
) -> None:
    """Check Python, packages, configuration, contributors and the application; nothing starts."""
    from lexigram.cli.examination import examine
    from lexigram.contracts.cli import DoctorStatus

    session = ctx.obj
    session.target = target
    rows: list[dict[str, Any]] = [
        {
            "check": name,
            "status": result.status.value,
            "message": result.message,
            "hint": result.hint,
            "details": dict(result.details),
        }
        for name, result in examine(session)
    ]
    healthy = all(row["status"] != DoctorStatus.ERROR for row in rows)
    session.output.table("checks", rows, ("check", "status", "message", "hint"), ok=healthy)
    if not healthy:
        raise typer.Exit(ExitCode.FAILURE)
