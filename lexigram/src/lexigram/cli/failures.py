"""Turn any error into text for people, data for programs, and an exit code."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

from attrs import frozen

from lexigram.cli.errors import CliError
from lexigram.cli.exit_codes import ExitCode
from lexigram.concurrency import call_sync
from lexigram.contracts.core.errors import ConfigurationError, LexigramError


@frozen(kw_only=True)
class Failure:
    """An error as the command line shows it; secrets are hidden."""

    exit_code: ExitCode
    text: str
    data: dict[str, Any]
    # The whole traceback, for --debug.
    trace: str


def describe_failure(error: BaseException, *, booted: bool = False) -> Failure:
    """The failure of a command; a group of one error counts as that error.

    ``booted``: the application had been started, which the exit code says.
    """
    from lexigram.config import redact_text

    error = _single(error)
    text = _text(error)
    data = _data(error)
    if not _is_invalid_graph(error):  # its parameter names and types are not secrets
        text = redact_text(text)
    return Failure(
        exit_code=exit_code_of(error, booted=booted),
        text=text,
        data=data,
        trace=redact_text("".join(traceback.format_exception(error))),
    )


def exit_code_of(error: BaseException, *, booted: bool = False) -> ExitCode:
    """The exit code for the kind of error, and whether anything was started."""
    error = _single(error)
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, CliError):
        return error.exit_code
    if _is_usage(error):
        return ExitCode.USAGE
    if booted:
        return ExitCode.FAILURE
    if isinstance(error, ConfigurationError):
        return ExitCode.USAGE
    return ExitCode.INVALID_GRAPH if _is_invalid_graph(error) else ExitCode.FAILURE


def summary(error: BaseException) -> str:
    """An error in one line, secrets hidden."""
    from lexigram.config import redact_text

    return redact_text(_name_error(error).partition("\n")[0])


def _text(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if _is_usage(error):
        return _usage(error)
    lines = [_name_error(error)]
    for cause in _causes(error):
        named = _name_error(cause)
        if "\n" in named and named in lines[0]:  # long, and quoted above: its name is enough
            named = named.partition("\n")[0]
        lines.append(f"caused by {named}{_place(cause)}")
    if not isinstance(error, LexigramError):
        lines[0] += _place(error)
        lines.append("--debug shows where it came from")
    return "\n".join(lines)


def _data(error: BaseException) -> dict[str, Any]:
    from lexigram.config import redact_text
    from lexigram.config.safe import safe

    if isinstance(error, LexigramError):
        data = error.to_dict()
    else:
        message = error.format_message() if _is_usage(error) else _message(error)  # type: ignore[attr-defined]
        data = {
            "code": None,
            "type": type(error).__name__,
            "message": message,
            "hint": None,
            "details": {},
        }
    if not _is_invalid_graph(error):
        data |= {"message": redact_text(data["message"]), "details": safe(data["details"])}
    data["causes"] = [redact_text(_name_error(cause)) for cause in _causes(error)]
    return data


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    text: str = error.format_message()
    if context is None:
        return text
    return f"{text}\n{context.get_usage()}\nTry `{context.command_path} --help`."


def _name_error(error: BaseException) -> str:
    text = _message(error)
    if isinstance(error, LexigramError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _message(error: BaseException) -> str:
    """The text of an error; that of others may raise one."""
    try:
        return call_sync(str, error)
    except Exception as failure:  # noqa: BLE001 - an error must be shown all the same
        return f"its text cannot be made ({type(failure).__name__})"


def _place(error: BaseException) -> str:
    """File and line where the error was raised, outside of the import machinery."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<")
    ]
    return f"  ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What led to an error, nearest first; all members of a group."""
    pending = _behind(error)
    while pending:
        cause = _single(pending.pop(0))
        yield cause
        pending = _behind(cause) + pending


def _behind(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    if isinstance(error, BaseExceptionGroup):
        found += error.exceptions
    if error.__cause__ is not None:
        found.append(error.__cause__)
    return found


def _single(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _is_usage(error: BaseException) -> bool:
    """An error of typer's parser. Its class moved between releases, its shape did not."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _is_invalid_graph(error: BaseException) -> bool:
    if not isinstance(error, LexigramError) or isinstance(error, CliError):
        return False  # without loading the container to find out
    from lexigram.app import AppStartupError
    from lexigram.di.errors import ContainerValidationError, ModuleError

    return isinstance(error, ContainerValidationError | ModuleError | AppStartupError)
