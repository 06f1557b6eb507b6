"""The table of commands: names and help are known, code is loaded when a command is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import typer
from attrs import frozen
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from lexigram.cli.built_in import COMMANDS
from lexigram.cli.contributors.registry import load_contributed, load_path
from lexigram.cli.errors import ContributorError
from lexigram.cli.session import session_of
from lexigram.concurrency import call_sync
from lexigram.contracts.cli import CommandContribution

# The class of typer's commands: click's, or typer's own copy of it in newer releases.
_Command: Any = TyperCommand.__bases__[0]

# What databases, brokers and clocks take.
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
_COMPLETION = {"--install-completion", "--show-completion"}


class Commands(TyperGroup):
    """The root command. Listing shows names only; what is used is loaded."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *sorted(session_of(ctx).contributors.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            return complete_command(_load_built_in(cmd_name))
        found = session_of(ctx).contributors.commands.get(cmd_name)
        return complete_command(_load_contributed_command(found)) if found else None

    def invoke(self, ctx: Any) -> None:
        # What a command returns is its own affair; exit codes are raised as typer.Exit.
        super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS:
            demand_known(ctx, args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        contributed = session_of(ctx).contributors.commands
        sections = {"Commands": [*COMMANDS.items()]}
        for name, item in sorted(contributed.items()):
            if not item.hidden:
                title = f"{item.category[:1].upper()}{item.category[1:]} commands"
                sections.setdefault(title, []).append((name, item.help))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def demand_known(ctx: Any, name: str, known: Sequence[str]) -> None:
    """Refuse a name that is no command, with the nearest that is; options are typer's affair."""
    if name in known or name.startswith("-") or ctx.resilient_parsing:
        return
    near = get_close_matches(name, known, n=1)
    ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))


def complete_command(command: Any) -> Any:
    """Give a command, and all below it, what every command has: options, and bounds of numbers."""
    for part in _tree(command):
        for parameter in part.params:
            parameter.type_cast_value = _add_bounds(parameter.type_cast_value, parameter)
        taken = _options(part) | getattr(part, "passes_on", set())
        for flag in _GLOBAL:
            options = [option for option in flag.options if option not in taken]
            if options:
                part.params.append(flag.option(options))
    return command


@frozen
class _Flag:
    """An option of every command, before or after it: sets one attribute of the output."""

    options: Sequence[str]
    help: str
    attribute: str
    value: bool = True

    def option(self, options: Sequence[str]) -> TyperOption:
        def note(ctx: Any, _parameter: Any, given: bool) -> None:
            if given:
                setattr(session_of(ctx).output, self.attribute, self.value)

        return TyperOption(
            # The name keeps clear of a command's own parameters.
            param_decls=[f"lexigram_{self.attribute}", *options],
            is_flag=True,
            default=False,
            expose_value=False,
            is_eager=True,
            callback=note,
            help=self.help,
        )


_GLOBAL = (
    _Flag(("--json",), "Print one JSON document.", "json"),
    _Flag(("--quiet", "-q"), "Print results and problems only.", "quiet"),
    _Flag(("--no-color",), "Print without colours.", "color", value=False),
    _Flag(("--debug",), "Show tracebacks.", "debug"),
)


def _tree(command: Any) -> Iterator[Any]:
    yield command
    for child in getattr(command, "commands", {}).values():
        yield from _tree(child)


def _add_bounds(cast: Callable[[Any, Any], Any], parameter: Any) -> Callable[[Any, Any], Any]:
    """Refuse what no range of click refuses: nan is in every range, and int has no end."""

    def cast_within_bounds(ctx: Any, given: Any) -> Any:
        value = cast(ctx, given)
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise typer.BadParameter(f"{number} is not a finite number.", ctx, parameter)
            if isinstance(number, int) and not MIN_INTEGER <= number <= MAX_INTEGER:
                raise typer.BadParameter("the number is beyond 64 bits.", ctx, parameter)
        return value

    return cast_within_bounds


def _options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def _load_built_in(name: str) -> Any:
    return _command(load_path(f"lexigram.cli.commands.{name}:app"), name)


def _load_contributed_command(item: CommandContribution) -> Any:
    found = load_contributed(item.contributor, item.app_factory_path)
    try:
        command = _command(found if _is_command(found) else call_sync(found), item.name)
    except Exception as error:
        raise ContributorError(
            f"{item.app_factory_path}, named by the contributor {item.contributor}, "
            "did not make a command",
            hint="it must be a typer app, or a function without arguments that returns one",
        ) from error
    if item.requires_app_context:
        _load_application_first(command)
    return command


def _is_command(found: Any) -> bool:
    return isinstance(found, typer.Typer) or hasattr(found, "make_context")


def _command(found: Any, name: str) -> Any:
    """A typer app, or a command of click, as a command of this group."""
    if isinstance(found, typer.Typer):
        command: Any = get_command(found)
        # Completion is offered once, by the root.
        command.params = [item for item in command.params if not _COMPLETION & {*item.opts}]
    elif isinstance(found, _Command):
        command = found
    elif hasattr(found, "make_context"):
        command = _foreign(found, name)
    else:
        raise TypeError(f"{found!r} is not a typer app")
    command.name = name
    for part in _tree(command):
        part.rich_markup_mode = None  # one look for all, and rich would cost 120 ms
    return command


def _foreign(command: Any, name: str) -> Any:
    """A command of click where typer has its own copy of it: all arguments are passed on."""
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    def call(ctx: typer.Context) -> None:
        command.main(ctx.args, prog_name=ctx.command_path)

    app = typer.Typer(add_completion=False)
    app.command(name, help=command.help, context_settings=settings)(call)
    wrapper: Any = get_command(app)
    wrapper.passes_on = {option for part in _tree(command) for option in _options(part)}
    return wrapper


def _load_application_first(command: Any) -> None:
    def note(ctx: Any, _parameter: Any, value: str | None) -> None:
        if value:
            session_of(ctx).target = value

    for part in _tree(command):
        if "--app" in _options(part):
            continue
        part.params.append(
            TyperOption(
                param_decls=["lexigram_app", "--app"],
                metavar="MODULE:APP",
                expose_value=False,
                callback=note,
                help="The application. Default: the one named in pyproject.toml.",
            )
        )
        if not hasattr(part, "commands"):
            part.invoke = _loading(part.invoke)


def _loading(invoke: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def load_and_invoke(ctx: Any) -> Any:
        session_of(ctx).application  # noqa: B018 - raises before the command starts
        return invoke(ctx)

    return load_and_invoke
