"""One run of the command line: how it speaks, which application it is about, who contributed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from lexigram.cli.output import Output

if TYPE_CHECKING:
    from lexigram.app import Application
    from lexigram.cli.contributors.registry import Contributors
    from lexigram.config import LoggingConfig

T = TypeVar("T")


class Session:
    """What every command finds as ``ctx.obj``."""

    def __init__(self, output: Output | None = None) -> None:
        self.output = output or Output()
        # MODULE:APP as given; None: the one named in pyproject.toml.
        self.target: str | None = None
        # As the application was made, before a command switched it off.
        self._background = True

    @cached_property
    def application(self) -> Application:
        """The application, loaded but not started; TargetError when there is none.

        It starts without its background work, unless it was loaded with ``background=True``.
        """
        from lexigram.cli.loading import load_application

        application = load_application(self.target)
        self._background = application.background_enabled
        application.background_enabled = False
        return application

    @cached_property
    def contributors(self) -> Contributors:
        """What installed packages add; problems are logged in one line, once."""
        from lexigram.cli.contributors.registry import Contributors

        found = Contributors.discover()
        if found.trouble:
            self.output.warn(f"{found.trouble}; `lexigram doctor` tells more")
        return found

    def load(self, target: str | None, *, background: bool = False) -> Application:
        """The application at ``target``, or the one named in pyproject.toml.

        ``background``: it starts with its background work (consumers, workers, schedules), unless
        it was made with ``background=False``.
        """
        self.target = target
        application = self.application
        if background:
            application.background_enabled = self._background
        return application

    def load_worker(self, target: str | None) -> Application:
        """Like ``load`` for a command that is nothing but background work."""
        from lexigram.cli.errors import CliError

        application = self.load(target, background=True)
        if not application.background_enabled:
            raise CliError(
                f"{application.name} is made without background work, and this command is a worker",
                hint="remove background=False from Application(...)",
            )
        return application

    @property
    def has_booted(self) -> bool:
        """True when the application was loaded and started, whatever became of it."""
        return "application" in self.__dict__ and self.application.has_booted

    def optional_application(self, target: str | None) -> Application | None:
        """Like ``load``, but None where no application is named at all."""
        from lexigram.cli.loading import default_target

        return self.load(target) if target or default_target() else None

    def configure_logging(
        self, *, quiet: bool = False, settings: LoggingConfig | None = None
    ) -> None:
        """Log by the settings (default: those of the application) and by the options of the command.

        ``quiet``: the command prints results, so only warnings and errors are logged.
        """
        from attrs import evolve

        from lexigram.cli.settings import read_config
        from lexigram.config import LoggingConfig
        from lexigram.observability.logging import configure_logging

        if settings is None:
            # Reading them may log already.
            early = LoggingConfig(json_format=self.output.json)
            configure_logging(early, quiet=quiet or self.output.quiet or None)
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

        Background work is left to a process that serves.
        Ctrl-C and SIGTERM cancel ``func``; the application is stopped all the same.
        """

        async def call() -> Any:
            async with self.application as app:
                return await app.container.call(func, *args, **kwargs)

        return self.run_async(call)

    def run_async(
        self, func: Callable[[], Awaitable[T]], logging: LoggingConfig | None = None
    ) -> T:
        """Call ``func`` in an event loop, cancelled by Ctrl-C and SIGTERM, without an application.

        ``logging``: how to log where there is no application to tell it.
        """
        import anyio

        from lexigram.app.signals import unless_signalled

        results: list[T] = []

        async def call() -> None:
            results.append(await func())

        self.configure_logging(quiet=True, settings=logging)
        anyio.run(unless_signalled, call)
        return results[0]


def session_of(ctx: Any) -> Session:
    """The session of a command's context, however deep the command is."""
    session: Session = ctx.find_root().obj
    return session
