"""A Python prompt whose code runs in the event loop of a started application."""

from __future__ import annotations

import ast
import code
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from lexigram.app.signals import on_interrupt
from lexigram.cli.built_in import SHELL_NAMES
from lexigram.cli.contributors.registry import Contributors, load_contributed
from lexigram.cli.failures import summary
from lexigram.cli.output import Output
from lexigram.concurrency import CallAbortedError, call
from lexigram.config.escape import escape_text
from lexigram.contracts.cli import ShellContextContribution

if TYPE_CHECKING:
    from lexigram.app import Application


def talk(application: Application, contributors: Contributors, output: Output) -> None:
    """Start the application, read and run code until the end of input, stop the application.

    The prompt keeps the main thread, so that Ctrl-C and line editing work as everywhere; the
    application and what is typed run in the event loop of another thread.
    """
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(application) as app:
        names: dict[str, Any] = {"app": app, "container": app.container}
        described = dict(SHELL_NAMES)
        for item in contributors.shell_context.values():
            try:
                names[item.name] = portal.call(_make, item, app.container)
                described[item.name] = item.description
            except Exception as error:  # noqa: BLE001 - code we do not own
                output.warn(f"{item.name} of {item.contributor} is left out: {summary(error)}")
        _edit_lines(names)
        banner = "" if output.quiet else _banner(app.name, described)
        AsyncConsole(names, portal).interact(banner=banner, exitmsg="")


class AsyncConsole(code.InteractiveConsole):
    """The standard console with ``await`` at the top level."""

    def __init__(self, names: dict[str, Any], portal: BlockingPortal) -> None:
        super().__init__(names)
        self.compile.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self._portal = portal

    def write(self, data: str) -> None:
        """Errors of what was typed; their texts do not steer the terminal."""
        super().write(escape_text(data))

    def runcode(self, code: CodeType) -> None:
        """Run one input in the event loop; Ctrl-C cancels what it awaits."""
        names: Any = self.locals
        typed = _Typed(FunctionType(code, names))
        try:
            with on_interrupt(typed.cancel):
                leave = typed.run(self._portal)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - whatever was typed
            cause = error.cause if isinstance(error, CallAbortedError) else None
            text = "".join(traceback.format_exception(_as_typed(cause or error)))
            self.write("KeyboardInterrupt\n" if typed.is_cancelled else text)
        else:
            if leave is not None:
                raise leave


class _Typed:
    """One input on its way through the event loop; it may be cancelled at any moment."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._running: Future[SystemExit | None] | None = None
        self.is_cancelled = False

    def run(self, portal: BlockingPortal) -> SystemExit | None:
        self._running = portal.start_task_soon(_run, self._function)
        if self.is_cancelled:  # while it was being started
            self._running.cancel()
        return self._running.result()

    def cancel(self) -> None:
        self.is_cancelled = True
        if self._running is not None:
            self._running.cancel()


def _as_typed(error: BaseException) -> BaseException:
    """The error without the frames that led to what was typed."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != "<console>":
        frame = frame.tb_next
    return error.with_traceback(frame)


async def _run(typed: Callable[[], Any]) -> SystemExit | None:
    """What ``exit()`` raised is handed over: raised here it would end the event loop."""
    try:
        await call(_await_result, typed)
    except CallAbortedError as error:
        if isinstance(error.cause, SystemExit):
            return error.cause
        raise
    except KeyboardInterrupt as error:  # typed, not pressed
        raise CallAbortedError(error) from error
    return None


async def _await_result(typed: Callable[[], Any]) -> None:
    result = typed()
    if inspect.iscoroutine(result):
        await result


def _edit_lines(names: dict[str, Any]) -> None:
    """History and completion of names at a terminal, where Python was built with them."""
    if not sys.stdin.isatty():
        return
    try:
        import readline
        import rlcompleter
    except ImportError:
        return
    readline.set_completer(rlcompleter.Completer(names).complete)
    readline.parse_and_bind("tab: complete")


async def _make(item: ShellContextContribution, container: Any) -> Any:
    factory = load_contributed(item.contributor, item.factory_path)
    return await call(factory, container, timeout=item.timeout, name=item.factory_path)


def _banner(name: str, described: Mapping[str, str]) -> str:
    lines = [f"  {key}  {text}" for key, text in described.items()]
    return "\n".join([f"{name} is running; await works here, Ctrl-D stops it.", *lines])
