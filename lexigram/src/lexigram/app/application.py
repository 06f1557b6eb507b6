"""An application: modules and providers put together, started, watched and stopped.

Imports of the container, of health and of signals stand inside the functions that need them:
``from lexigram.app import Application`` must cost little more than anyio and attrs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio

from lexigram.app.errors import ApplicationError
from lexigram.app.state import AppState
from lexigram.concurrency import CallTimeoutError, call
from lexigram.contracts.core.errors import ConfigurationError

if TYPE_CHECKING:
    from lexigram.app._lifecycle import Lifecycle, ProviderEntry
    from lexigram.app.health import NamedCheck
    from lexigram.config import LexigramConfig
    from lexigram.contracts.core.health import AggregateHealthResult
    from lexigram.di.container import Container
    from lexigram.di.module import ModuleGraph, ModuleLike, ModuleNode
    from lexigram.di.provider import Provider
    from lexigram.events import EventBus
    from lexigram.hooks import HookRegistry

log = logging.getLogger(__name__)


class Application:
    """Modules and providers with a common life.

    ``async with Application("shop", modules=[...]) as app`` starts it and always stops it. If
    a part dies while the application runs, the block is cancelled and the error raised.
    Creating an application reads no file and configures nothing.

    ``background=False`` starts it without what works by itself: see ``background_enabled``.
    """

    def __init__(
        self,
        name: str = "lexigram-app",
        config: LexigramConfig | None = None,
        *,
        modules: Iterable[ModuleLike] = (),
        providers: Iterable[Provider | type[Any]] = (),
        overrides: Mapping[Any, Any] | None = None,
        background: bool = True,
    ) -> None:
        self.name = name
        self._given_config = config
        self._config: LexigramConfig | None = None
        self._modules = list(modules)
        self._providers = list(providers)
        self._overrides = dict(overrides or {})
        self._background_enabled = background
        self._state = AppState.CREATED
        self._graph: ModuleGraph | None = None
        self._container: Container | None = None
        self._lifecycle: Lifecycle | None = None
        self._entries: list[ProviderEntry] = []
        self._deaths: list[tuple[str, BaseException]] = []
        self._died = anyio.Event()
        self._stopped = anyio.Event()
        self._body: asyncio.Task[Any] | None = None
        self._cancelled_body = False
        self._serving = False
        self._stopper: asyncio.Task[None] | None = None
        self._events: EventBus | None = None
        self._hooks: HookRegistry | None = None

    @property
    def state(self) -> AppState:
        """Where the application is in its life."""
        return self._state

    @property
    def is_running(self) -> bool:
        """True between a successful start and the beginning of the stop."""
        return self._state is AppState.RUNNING

    @property
    def has_booted(self) -> bool:
        """True once providers were booted, or a boot was tried; before, nothing was started."""
        return self._lifecycle is not None

    @property
    def background_enabled(self) -> bool:
        """False: it starts no consumers, job workers, schedules, relays, workflows on events.

        Every provider has it under the same name. Services do what they are called for either
        way. Can be changed before the start only: commands switch it off, except ``run``,
        ``serve`` and workers.
        """
        return self._background_enabled

    @background_enabled.setter
    def background_enabled(self, enabled: bool) -> None:
        if self._state is not AppState.CREATED:
            raise ApplicationError(
                f'"{self.name}" is {self._state.value}, and what it starts is decided before',
                hint="set background_enabled before the start",
            )
        self._background_enabled = enabled

    @property
    def container(self) -> Container:
        """The container; there is one from the start on."""
        if self._container is None:
            raise ApplicationError(
                f'"{self.name}" has no container yet', hint="start it: `async with app:`"
            )
        return self._container

    @property
    def config(self) -> LexigramConfig:
        """The configuration in force; read from files and variables at start unless given."""
        config = self._config or self._given_config
        if config is None:
            raise ApplicationError(
                f'"{self.name}" has not read its configuration yet',
                hint="start it, or pass config= to Application",
            )
        return config

    @property
    def modules(self) -> list[ModuleNode]:
        """The module graph in import order, the application itself last."""
        return self._module_graph().nodes

    @property
    def providers(self) -> list[Provider]:
        """Every provider, those of imported modules first."""
        return [provider for node in self._module_graph().nodes for provider in node.providers]

    @property
    def events(self) -> EventBus:
        """The in-process event bus; subscribe before the start to see lifecycle events."""
        if self._events is None:
            from lexigram.events import EventBus

            self._events = EventBus()
        return self._events

    @property
    def hooks(self) -> HookRegistry:
        """The hook registry; register before the start to see lifecycle hooks."""
        if self._hooks is None:
            from lexigram.hooks import HookRegistry

            self._hooks = HookRegistry()
        return self._hooks

    def add_module(self, module: ModuleLike) -> None:
        """Add a module; only before the start."""
        self._change().append(module)

    def add_modules(self, modules: Iterable[ModuleLike]) -> None:
        """Add modules; only before the start."""
        self._change().extend(modules)

    def add_provider(self, provider: Provider | type[Any]) -> None:
        """Add a provider to the application itself; only before the start."""
        self._change()
        self._providers.append(provider)

    def add_providers(self, providers: Iterable[Provider | type[Any]]) -> None:
        """Add providers to the application itself; only before the start."""
        self._change()
        self._providers.extend(providers)

    def discover_modules(
        self, *, enabled: Collection[str] | None = None, disabled: Collection[str] = ()
    ) -> None:
        """Add the modules that installed packages offer under ``lexigram.modules``.

        One that is in the application already, configured or bare, is left as it is.
        """
        from lexigram.app.discovery import installed_modules

        self.add_modules(installed_modules(enabled, disabled))

    def add_overrides(self, overrides: Mapping[Any, Any]) -> None:
        """Replace services before anything is built; only before the start."""
        self._change()
        self._overrides.update(overrides)

    async def start(self) -> None:
        """Register, freeze, boot. What fails undoes everything and is raised by name."""
        if self._state is not AppState.CREATED:
            raise ApplicationError(
                f'"{self.name}" is {self._state.value} and cannot be started',
                hint="an application starts once: make a new one",
            )
        self._state = AppState.STARTING
        began = time.perf_counter()
        try:
            await self._start()
        except BaseException as error:
            await self._undo(error)
            raise
        self._state = AppState.RUNNING
        await self._announce("ApplicationStarted", app_name=self.name, duration_ms=_since(began))

    async def stop(self, error: BaseException | None = None) -> None:
        """Shut down in reverse within ``app.shutdown_timeout``; a second call waits for the first.

        ``error`` is shown to the teardown of resources. Raises AppShutdownError when something
        did not stop cleanly, after everything has been tried.
        """
        if self._state in (AppState.CREATED, AppState.STOPPED):
            self._state = AppState.STOPPED
            return
        if self._state is AppState.STOPPING:
            await self._stopped.wait()
            return
        self._state = AppState.STOPPING
        began = time.perf_counter()
        with anyio.CancelScope(shield=True):
            await self._announce("ApplicationStopping", app_name=self.name)
            try:
                await self._shutdown(error)
            finally:
                self._state = AppState.STOPPED
                self._stopped.set()
                await self._announce(
                    "ApplicationStopped", app_name=self.name, duration_ms=_since(began)
                )

    async def __aenter__(self) -> Self:
        self._body = asyncio.current_task()
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        body, self._body = self._body, None
        await self.stop(error)
        if self._cancelled_body and body is not None and body is asyncio.current_task():
            body.uncancel()
        self._raise_death(error)

    @classmethod
    @contextlib.asynccontextmanager
    async def boot(
        cls,
        name: str = "lexigram-app",
        *,
        modules: Iterable[ModuleLike] = (),
        providers: Iterable[Provider | type[Any]] = (),
        config: LexigramConfig | None = None,
        overrides: Mapping[Any, Any] | None = None,
        background: bool = True,
    ) -> AsyncIterator[Self]:
        """``async with Application.boot(...) as app``: the same as ``async with cls(...)``."""
        async with cls(
            name,
            config,
            modules=modules,
            providers=providers,
            overrides=overrides,
            background=background,
        ) as app:
            yield app

    def run(self) -> None:
        """Run until SIGINT or SIGTERM, drain, and return; a second signal ends the process.

        Configures logging from the configuration, as the command line does.
        """
        from lexigram.observability.logging import configure_logging

        self._load_config()
        configure_logging(self.config.logging)
        anyio.run(self.serve)

    async def serve(self, work: Callable[[], Awaitable[None]] | None = None) -> None:
        """Start, wait for a signal or a death, stop. ``run`` without the event loop.

        ``work`` runs while the application does, and is cancelled by a signal or a death; the
        application stops when it has returned.
        """
        from lexigram.app.signals import run_until_signal, unless

        async def work_until_death() -> None:
            assert work is not None
            await unless(self._died, work)

        self._serving = True
        wait = self._died.wait if work is None else work_until_death
        await run_until_signal(self._start_and_say, wait, self.stop)
        log.info("%s stopped", self.name)
        self._raise_death(None)

    async def health_check(self, timeout: float | None = None) -> AggregateHealthResult:
        """Every component's health; the whole is as bad as the worst. Never raises."""
        from lexigram.app.health import dead_part, not_running, provider_check

        if self._state is not AppState.RUNNING:
            return await self._ask([not_running(self.name, self._state)], timeout)
        checks = [provider_check(entry.provider) for entry in self._entries]
        checks += [dead_part(name, error) for name, error in self._deaths]
        began = time.perf_counter()
        result = await self._ask(checks, timeout)
        await self._announce(
            "HealthCheckCompleted", status=result.status, duration_ms=_since(began)
        )
        return result

    async def readiness(self, timeout: float | None = None) -> AggregateHealthResult:
        """Whether the application can do its work: all checks of category READINESS."""
        from lexigram.app.health import of_category
        from lexigram.contracts.core.health import HealthCheckCategory

        return of_category(await self.health_check(timeout), HealthCheckCategory.READINESS)

    async def liveness(self, timeout: float | None = None) -> AggregateHealthResult:
        """Whether the process is worth keeping; HEALTHY until stopped or a LIVENESS check says no."""
        from lexigram.app.health import of_category, process_alive
        from lexigram.contracts.core.health import HealthCheckCategory

        if self._state is AppState.RUNNING:
            result = of_category(await self.health_check(timeout), HealthCheckCategory.LIVENESS)
            if result.components:
                return result
        return await self._ask([process_alive(self.name, self._state)], timeout)

    async def startup_check(self, timeout: float | None = None) -> AggregateHealthResult:
        """Whether the start is over: STARTING until then, HEALTHY once running."""
        from lexigram.app.health import startup

        return await self._ask([startup(self.name, self._state)], timeout)

    def __repr__(self) -> str:
        return f"<Application {self.name!r} {self._state.value}>"

    def compose(self) -> Container:
        """Put the container together without starting anything: for inspection."""
        return self._compose(self._module_graph())

    async def register(self) -> Container:
        """Compose, let every provider register, and freeze: the graph is checked, nothing runs."""
        from lexigram.app._lifecycle import provider_entries
        from lexigram.contracts.core.provider import ProviderState

        graph = self._module_graph()
        self._entries = provider_entries(graph)
        self._load_config()
        container = self._container = self._compose(graph)
        registering = ""
        # One limit for all: a cancel scope for each of 50 providers is a tenth of the whole start.
        with anyio.move_on_after(self.config.app.boot_timeout) as limit:
            for entry in self._entries:
                provider = entry.provider
                registering = provider.name
                # Set in both cases: a provider may have served another application before.
                provider.background_enabled = self._background_enabled
                await call(provider.register, container.registrar(entry.node, provider))
                provider.state = ProviderState.REGISTERED
                await self._announce("ProviderRegistered", provider=provider.name)
        if limit.cancelled_caught:
            raise CallTimeoutError(
                f'registering provider "{registering}"', self.config.app.boot_timeout
            )
        container.freeze(self._overrides)
        return container

    async def _start_and_say(self) -> None:
        began = time.perf_counter()
        await self.start()
        log.info(
            "%s started: %d modules, %d providers, %.0f ms",
            self.name,
            len(self.modules) - 1,
            len(self._entries),
            _since(began),
        )

    async def _start(self) -> None:
        from lexigram.app._lifecycle import Lifecycle, boot_levels

        await self._announce("ApplicationStarting", app_name=self.name)
        container = await self.register()
        container.on_resource_death = lambda binding, error: self._on_death(
            f"resource {binding.name}", error
        )
        levels = boot_levels(self._entries, self._module_graph(), container.bindings)
        limit = self.config.app.boot_timeout
        self._lifecycle = Lifecycle(container, limit, self._on_death, self._announce_boot)
        await self._lifecycle.boot(levels)
        await call(container.start, timeout=limit, name="starting what no provider registered")
        for node in self._user_modules():
            name = f"{node.name}.on_module_booted"
            await call(node.token.on_module_booted, timeout=limit, name=name)

    async def _undo(self, error: BaseException) -> None:
        with anyio.CancelScope(shield=True):
            try:
                if self._lifecycle is not None:
                    await self._lifecycle.shutdown(self.config.app.shutdown_timeout, error)
            except Exception as failure:
                error.add_note(f"while undoing the start: {failure}")
                if not isinstance(error, Exception):  # cancelled by a signal: nobody shows it
                    log.exception("%s: the start was not undone", self.name)
            finally:
                self._state = AppState.STOPPED
                self._stopped.set()

    async def _shutdown(self, error: BaseException | None) -> None:
        assert self._lifecycle is not None
        timeout = self.config.app.shutdown_timeout
        failures: list[Exception] = []
        for node in reversed(self._user_modules()):
            try:
                name = f"{node.name}.on_module_shutdown"
                await call(node.token.on_module_shutdown, timeout=timeout, name=name)
            except Exception as failure:  # noqa: BLE001 - raised below, with the others
                failures.append(failure)
        try:
            await self._lifecycle.shutdown(timeout, error)
        except Exception as failure:  # noqa: BLE001 - raised below, with the others
            failures.append(failure)
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise ExceptionGroup(f'"{self.name}" did not stop cleanly', failures)

    def _compose(self, graph: ModuleGraph) -> Container:
        from lexigram.di.container import Container

        container = Container(self.name, graph)
        config = self._config or self._given_config
        container.config = config
        container.bind(Application, self)
        if type(self) is not Application:
            container.bind(type(self), self)
        if config is not None:
            self._bind_config(container, config)
        self._bind_defaults(container)
        return container

    def _bind_config(self, container: Container, config: LexigramConfig) -> None:
        from lexigram.config import LexigramConfig

        container.bind(LexigramConfig, config)
        if type(config) is not LexigramConfig:
            container.bind(type(config), config)

    def _bind_defaults(self, container: Container) -> None:
        """What every application has, unless a provider brings something better."""
        from lexigram.clock import SystemClock
        from lexigram.contracts.core.clock import ClockProtocol
        from lexigram.contracts.core.hooks import HookRegistryProtocol
        from lexigram.contracts.events import EventBusProtocol
        from lexigram.contracts.observability.metrics import MetricsProtocol, NoOpMetrics
        from lexigram.contracts.observability.tracing import NoOpTracer, TracerProtocol
        from lexigram.di.container import unbound
        from lexigram.events import EventBus
        from lexigram.hooks import HookRegistry

        def events() -> EventBus:
            return self.events

        def hooks() -> HookRegistry:
            return self.hooks

        container.singleton(EventBus, factory=events)
        container.singleton(HookRegistry, factory=hooks)
        container.singleton(EventBusProtocol, factory=events, when=unbound)
        container.singleton(HookRegistryProtocol, factory=hooks, when=unbound)
        container.singleton(ClockProtocol, SystemClock, when=unbound)
        container.singleton(TracerProtocol, NoOpTracer, when=unbound)
        container.singleton(MetricsProtocol, NoOpMetrics, when=unbound)

    def _load_config(self) -> None:
        """Read or check the configuration, and give each provider its section."""
        if self._config is not None:
            return
        providers = self.providers
        models = {
            provider.config_key: _config_model(provider)
            for provider in providers
            if provider.config_key is not None or provider.config_model is not None
        }
        sections = {key: model for key, model in models.items() if key is not None}
        if self._given_config is not None:
            config = self._given_config.bind_sections(sections)
        else:
            from lexigram.config import load_config

            config = load_config(sections=sections)
        if config.trace.ignored:
            from lexigram.config.sources import log_ignored

            log_ignored(config.trace)
        _check_environment(config)
        for provider in providers:
            if provider.config_key is not None and provider.config is None:
                provider.config = config.get_section(
                    provider.config_key, sections[provider.config_key]
                )
        self._config = config

    def _module_graph(self) -> ModuleGraph:
        if self._graph is None:
            from lexigram.di.module import ModuleGraph

            self._graph = ModuleGraph(self._modules, self._providers)
        return self._graph

    def _user_modules(self) -> list[ModuleNode]:
        from lexigram.di.module import Module

        return [node for node in self._module_graph().nodes[:-1] if issubclass(node.token, Module)]

    def _change(self) -> list[ModuleLike]:
        if self._state is not AppState.CREATED:
            raise ApplicationError(
                f'"{self.name}" is {self._state.value}; modules and providers are added before '
                "the start",
                hint="add them to Application(modules=..., providers=...)",
            )
        self._graph = None
        return self._modules

    def _on_death(self, name: str, error: BaseException) -> None:
        """A part ended while in use: readiness is UNHEALTHY from here, and the application stops."""
        self._deaths.append((name, error))
        log.error("%s died: %r", name, error, exc_info=error)
        if self._state is not AppState.RUNNING:
            return
        self._died.set()
        if self._serving:
            return
        if self._body is None:
            self._stopper = asyncio.get_running_loop().create_task(self._stop_after_death())
        else:
            self._cancelled_body = True
            self._body.cancel(f"{name} died")

    async def _stop_after_death(self) -> None:
        """Nobody waits inside this application, so it is stopped from here; held, not lost."""
        try:
            await self.stop()
        except Exception:
            log.exception("%s did not stop cleanly after a death", self.name)

    def _raise_death(self, error: BaseException | None) -> None:
        if self._deaths and (error is None or self._cancelled_body):
            name, death = self._deaths[0]
            raise ApplicationError(
                f'"{self.name}" was stopped because {name} died: {death!r}',
                hint="the cause is above",
            ) from death

    async def _ask(self, checks: list[NamedCheck], timeout: float | None) -> AggregateHealthResult:
        from lexigram.app.health import ask_all, without_details

        config = self._config
        limit = timeout or (config.app.health_check_timeout if config else 5.0)
        result = await ask_all(checks, limit)
        return (
            result if config is None or config.health.include_details else without_details(result)
        )

    async def _announce_boot(self, provider: Provider, duration_ms: float) -> None:
        await self._announce("ProviderBooted", provider=provider.name, duration_ms=duration_ms)

    async def _announce(self, name: str, **facts: Any) -> None:
        """Emit a lifecycle event and hook, built only when there is a listener."""
        unheard = self._events is None or self._events.is_idle
        if unheard and (self._hooks is None or self._hooks.is_idle):
            return
        from lexigram.events import lifecycle

        kind = getattr(lifecycle, name)
        heard = self.events.has_subscribers(kind)
        hooked = self.hooks.wants(kind)
        if not heard and not hooked:
            return
        event = kind(**facts)
        if heard:
            result = await self.events.publish(event)
            if result.is_err():
                failure = result.unwrap_err()
                log.error("a handler of %s failed: %s", name, failure, exc_info=failure)
        if hooked:
            await self.hooks.emit(event)


def create_app(
    name: str = "lexigram-app",
    config: LexigramConfig | None = None,
    *,
    modules: Iterable[ModuleLike] = (),
    providers: Iterable[Provider | type[Any]] = (),
) -> Application:
    """An application, not started."""
    return Application(name, config, modules=modules, providers=providers)


async def run_application(app: Application) -> None:
    """Start, wait for SIGINT or SIGTERM, stop: ``app.run()`` inside a running event loop."""
    await app.serve()


def _config_model(provider: Provider) -> type[Any]:
    if provider.config_key is None or provider.config_model is None:
        has, lacks = ("config_key", "config_model")
        if provider.config_key is None:
            has, lacks = lacks, has
        raise ConfigurationError(
            f'provider "{provider.name}" has {has} but no {lacks}', hint=f"set {lacks} too"
        )
    return provider.config_model


def _check_environment(config: LexigramConfig) -> None:
    errors = [issue for issue in config.validate_for_environment() if issue.severity == "error"]
    if errors:
        lines = "; ".join(f"{issue.field} {issue.message}" for issue in errors)
        hints = "; ".join(issue.suggestion for issue in errors if issue.suggestion)
        raise ConfigurationError(
            f"invalid configuration for environment {config.env.value!r}: {lines}",
            hint=hints or None,
        )


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
