"""``lexigram config``: show, check and list the settings. Secrets are never shown."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lexigram.cli.context import CommandContext
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.session import Session
from lexigram.cli.settings import read_config, section_models

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:APP",
        help="The application whose sections are known. Default: the one named in pyproject.toml; "
        "without one only the settings every application has are checked.",
    ),
]

app = typer.Typer(help="Show, check and list the settings.")


@app.command()
def show(ctx: CommandContext, target: Target = None) -> None:
    """Every setting in effect and where it came from; secrets are hidden."""
    session = ctx.obj
    show_config(session, session.optional_application(target))


def show_config(session: Session, application: Any) -> None:
    """The values in effect, with their sources."""
    from lexigram.config import explain_values

    values = [
        {"key": item.key, "value": item.value, "source": item.source}
        for item in explain_values(read_config(application))
    ]
    session.output.table("settings", values, ("key", "value", "source"))


@app.command()
def validate(ctx: CommandContext, target: Target = None) -> None:
    """Check files and variables; every problem is shown, and the exit code is 2."""
    session = ctx.obj
    application = session.optional_application(target)
    config = read_config(application)
    issues = config.validate_for_environment()
    rows = [
        {
            "severity": issue.severity,
            "setting": issue.field,
            "problem": issue.message,
            "fix": issue.suggestion,
        }
        for issue in issues
    ]
    valid = all(issue.severity != "error" for issue in issues)
    checked = ["root", *section_models(application)]
    if rows or session.output.json:
        columns = ("severity", "setting", "problem", "fix")
        session.output.table("issues", rows, columns, valid=valid, sections=checked)
    if not valid:
        raise typer.Exit(ExitCode.USAGE)
    session.output.note(f"the configuration is valid for {config.env.value}")


@app.command()
def env(ctx: CommandContext, target: Target = None) -> None:
    """Every variable that is read, with its type and default."""
    from lexigram.config import RESERVED_VARIABLES, LexigramConfig, env_variables

    session = ctx.obj
    models = section_models(session.optional_application(target))
    found = [*env_variables(LexigramConfig)]
    for section, model in models.items():
        found += env_variables(model, section)
    rows = [
        {
            "variable": item.name,
            "type": item.type,
            "default": "required" if item.required else item.default,
            "secret": item.secret,
            "meaning": item.doc,
        }
        for item in found
    ]
    rows += [
        {"variable": name, "type": "", "default": None, "secret": False, "meaning": meaning}
        for name, meaning in RESERVED_VARIABLES.items()
    ]
    session.output.table("variables", rows, ("variable", "type", "default", "secret", "meaning"))
