"""Values as people write them on a command line: JSON where it is JSON, else text."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from lexigram.cli.errors import CliError

Input = Annotated[
    str | None,
    typer.Option("--input", metavar="TEXT", help="The input; JSON where it is JSON."),
]
Argument = Annotated[
    list[str] | None,
    typer.Option(
        "--arg", metavar="NAME=VALUE", help="A fact, or an argument of a saga; JSON where it is."
    ),
]


def value_of(given: str | None, arguments: list[str] | None) -> Any:
    """The input of a run: text or JSON, or facts by name."""
    if not arguments:
        return None if given is None else parsed(given)
    facts: dict[str, Any] = {} if given is None else {"input": parsed(given)}
    for item in arguments:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise CliError(f"--arg {item} has no name", hint="write --arg name=value")
        facts[name] = parsed(value)
    return facts


def parsed(text: str) -> Any:
    """JSON where it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text
