"""One run of the command line: how it speaks, which application it is about, who contributed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lexigram.cli.output import Output

if TYPE_CHECKING:
    from lexigram.app import Application
    from lexigram.cli.contributors.registry import Contributors


class Session:
    """What every command finds as ``ctx.obj``."""

    def __init__(self, output: Output | None = None) -> None:
        self.output = output or Output()
        # MODULE:APP as given; None: the one named in pyproject.toml.
        self.target: str | None = None

    @cached_property
    def application(self) -> Application:
        """The application, loaded but not started; TargetError when there is none."""
        from lexigram.cli.loading import load_application

        return load_application(self.target)

    @cached_property
    def contributors(self) -> Contributors:
        """What installed packages add; problems are told in one line, once."""
        from lexigram.cli.contributors.registry import Contributors

        found = Contributors.discover()
        if found.trouble:
            self.output.warn(f"{found.trouble}; `lexigram doctor` tells more")
        return found

    def load(self, target: str | None) -> Application:
        """The application at ``target``, or the one named in pyproject.toml."""
        self.target = target
        return self.application

    def optional_application(self, target: str | None) -> Application | None:
        """Like ``load``, but None where no application is named at all."""
        from lexigram.cli.loading import default_target

        return self.load(target) if target or default_target() else None

    def configure_logging(self, *, quiet: bool = False) -> None:
        """Log as the application's settings and the options of this run say.

        ``quiet``: the command prints results, so only warnings and errors are logged.
        """
        from attrs import evolve

        from lexigram.cli.settings import read_config
        from lexigram.observability.logging import configure_logging

        settings = read_config(self.application).logging
        if self.output.json:
            settings = evolve(settings, json_format=True)
        if self.output.debug:
            configure_logging(evolve(settings, level="DEBUG"), quiet=False)
        else:
            # None: the variable LEX_QUIET decides.
            configure_logging(settings, quiet=quiet or self.output.quiet or None)

    def run(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Start the application, call ``func`` with what it asks for, stop the application.

        It only looks: consumers, job workers and schedules are left to a process that serves.
        Ctrl-C and SIGTERM cancel ``func``; the application is stopped all the same.
        """
        import anyio

        from lexigram.app.signals import unless_signalled

        result: Any = None

        async def call() -> None:
            nonlocal result
            async with self.application as app:
                result = await app.container.call(func, *args, **kwargs)

        self.application.only_look()
        self.configure_logging(quiet=True)
        anyio.run(unless_signalled, call)
        return result


def session_of(ctx: Any) -> Session:
    """The session of a command's context, however deep the command is."""
    session: Session = ctx.find_root().obj
    return session
