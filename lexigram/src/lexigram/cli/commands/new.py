"""``lexigram new``: a small application that runs, with a test that passes."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from lexigram.cli.context import CommandContext
from lexigram.cli.errors import CliError

TEMPLATE = Path(__file__).parent.parent / "template"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")

app = typer.Typer()


@app.command()
def new(
    ctx: CommandContext,
    name: Annotated[str, typer.Argument(metavar="APP", help="Its name, and that of the folder.")],
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that has files already.")
    ] = False,
) -> None:
    """Make a new application in a folder of its own: it runs, and its test passes."""
    session = ctx.obj
    package = package_name(name)
    folder = Path(name)
    _demand_empty(folder, force=force)
    files = [_write(folder / path, text) for path, text in rendered(name, package)]
    text = (
        f"{len(files)} files in {folder}\n\n  cd {folder}\n  pytest\n"
        f"  lexigram run {package}.app:app\n"
    )
    data = {"app": f"{package}.app:app", "folder": str(folder), "files": files}
    if session.output.json or not session.output.quiet:
        session.output.text(text, data)


def package_name(name: str) -> str:
    """The package of an application with this name; CliError when it cannot be one."""
    package = name.replace("-", "_").lower()
    if not _NAME.fullmatch(name):
        raise CliError(
            f"{name!r} cannot be the name of an application",
            hint="use a-z, 0-9 and single - or _, beginning with a-z",
        )
    if keyword.iskeyword(package) or package in sys.stdlib_module_names | {"lexigram", "tests"}:
        raise CliError(
            f"{name!r} would hide the module {package}", hint=f"try {name}-app or another name"
        )
    return package


def rendered(name: str, package: str) -> Iterator[tuple[str, str]]:
    """(path, text) of every file of a new application."""
    for file in sorted(TEMPLATE.rglob("*.tmpl")):
        path = file.relative_to(TEMPLATE).as_posix().removesuffix(".tmpl")
        text = Template(file.read_text(encoding="utf-8")).substitute(name=name, package=package)
        yield path.replace("package", package).replace("dot.", "."), text


def _demand_empty(folder: Path, *, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise CliError(f"{folder} is a file", hint="choose another name")
    if folder.exists() and any(folder.iterdir()) and not force:
        raise CliError(
            f"{folder} has files already",
            hint="choose another name, or --force to write into it (same names are overwritten)",
        )


def _write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)
