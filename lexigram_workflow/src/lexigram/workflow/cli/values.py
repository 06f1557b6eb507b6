"""Values as people write them on a command line: JSON where it is JSON, else text."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lexigram.cli.errors import CliError
from lexigram.cli.values import parse_value
from lexigram.contracts.workflow.errors import InvalidRunError
from lexigram.contracts.workflow.limits import check_value

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
        return None if given is None else parsed(given, "--input")
    facts: dict[str, Any] = {} if given is None else {"input": parsed(given, "--input")}
    for item in arguments:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise CliError(f"--arg {item} has no name", hint="write --arg name=value")
        facts[name] = parsed(value, f"--arg {name}")
    return facts


def parsed(text: str, option: str) -> Any:
    """JSON where it is; a value that a run cannot have is refused by the name of its option."""
    value = parse_value(text, option)
    try:
        check_value(option, value)
    except InvalidRunError as error:
        raise CliError(error.message, details=error.details, hint=error.hint) from None
    return value
