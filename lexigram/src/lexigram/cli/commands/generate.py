"""``lexigram generate``: write code with the generators of installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from lexigram.cli.context import CommandContext
from lexigram.cli.contributors.registry import load_contributed
from lexigram.cli.errors import CliError, ContributorError
from lexigram.cli.session import Session, session_of
from lexigram.concurrency import call_sync
from lexigram.contracts.cli import GeneratorDefinition


class Generators(TyperGroup):
    """One command per contributed generator, with the options it declares."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(session_of(ctx).contributors.generators)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from lexigram.cli.group import complete_command

        session = session_of(ctx)
        found = session.contributors.generators.get(cmd_name)
        return complete_command(_command(found, session)) if found else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        from lexigram.cli.group import demand_known

        demand_known(ctx, args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=Generators, invoke_without_command=True)


@app.callback()
def generate(ctx: CommandContext) -> None:
    """Write code with a generator of an installed package; without one, list them."""
    if ctx.invoked_subcommand is not None:
        return
    session = ctx.obj
    rows = [
        {
            "generator": item.name,
            "title": item.title,
            "description": item.description,
            "options": sorted(item.options),
            "folder": item.default_output_dir,
            "contributor": item.contributor,
        }
        for item in session.contributors.generators.values()
    ]
    columns = ("generator", "title", "options", "folder", "contributor")
    session.output.table("generators", rows, columns)


def write_files(files: Mapping[str, str], folder: Path, *, force: bool) -> list[str]:
    """Write what a generator returned, all or nothing; the paths written."""
    paths = {folder / path: text for path, text in files.items()}
    for path in paths:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ContributorError(f"{path} lies outside of {folder}")
    there = [str(path) for path in paths if path.exists()]
    if there and not force:
        raise CliError(f"already there: {', '.join(there)}", hint="--force overwrites them")
    for path, text in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [str(path) for path in paths]


def _command(item: GeneratorDefinition, session: Session) -> TyperCommand:
    def call(name: str, folder: str, force: bool, **options: str | None) -> None:
        given = {key: value for key, value in options.items() if value is not None}
        files = _generate(item, name, given)
        written = write_files(files, Path(folder), force=force)
        session.output.text("\n".join(written), {"generator": item.name, "files": written})

    options = [
        TyperOption(param_decls=[name, f"--{name.replace('_', '-')}"], help=text)
        for name, text in item.options.items()
    ]
    return TyperCommand(
        item.name,
        callback=call,
        help=f"{item.title}. {item.description}",
        rich_markup_mode=None,
        params=[
            TyperArgument(param_decls=["name"], required=True, help="Name of what is made."),
            *options,
            TyperOption(
                param_decls=["folder", "--output"],
                default=item.default_output_dir,
                show_default=True,
                help="Folder to write to.",
            ),
            TyperOption(
                param_decls=["force", "--force"],
                is_flag=True,
                default=False,
                help="Overwrite files that are there.",
            ),
        ],
    )


def _generate(
    item: GeneratorDefinition, name: str, options: Mapping[str, str]
) -> Mapping[str, str]:
    made = load_contributed(item.contributor, item.generator_path)
    try:
        files: Any = call_sync(lambda: made().generate(name, **options))
    except CliError:
        raise
    except Exception as error:
        raise ContributorError(
            f"the generator {item.name} of {item.contributor} failed",
            hint=f"update or remove the package that brings {item.contributor}",
        ) from error
    if not isinstance(files, Mapping):
        raise ContributorError(
            f"the generator {item.name} of {item.contributor} returned {type(files).__name__}",
            hint="generate(name, **options) returns a mapping: path -> text",
        )
    return files
