"""A provider: the unit that registers services, boots them, shuts them down and reports health."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.core.provider import ProviderPriority, ProviderState

__all__ = ["Provider", "ProviderPriority", "ProviderState"]


class Provider:
    """Base of all providers. Override what you need; every method has a working default.

    ``register`` only records bindings. ``boot`` runs once the container is frozen, in a task
    that lives until ``shutdown`` has returned, so a task group or cancel scope entered in
    ``boot`` may be left in ``shutdown``. Providers of one level boot side by side.
    """

    name: str = ""
    priority: ProviderPriority | int = ProviderPriority.NORMAL
    # Names of providers that must be booted before this one.
    dependencies: tuple[str, ...] = ()
    # The same, for providers that may be absent.
    optional_dependencies: tuple[str, ...] = ()
    # Seconds; None means the application's default.
    boot_timeout: float | None = None
    # False: a failing boot degrades health instead of failing the application.
    required: bool = True
    # Section of the configuration, and the class it is structured into, set as ``self.config``.
    config_key: str | None = None
    config_model: type[Any] | None = None

    # False (``Application(background=False)``): start nothing that works by itself, such as
    # consumers, workers and timers. Known from ``register`` on.
    background_enabled: bool = True
    # What the command says about a worker of its own in this process: ``serve`` and ``worker``
    # want one, ``serve --no-worker`` none; None leaves it to the configuration.
    run_worker: bool | None = None

    _is_named: ClassVar[bool] = False  # by hand, here or in a base class
    config: Any = None
    state: ProviderState = ProviderState.CREATED

    def __init__(
        self,
        *,
        name: str | None = None,
        priority: ProviderPriority | int | None = None,
        dependencies: tuple[str, ...] | None = None,
        optional_dependencies: tuple[str, ...] | None = None,
        boot_timeout: float | None = None,
        required: bool | None = None,
    ) -> None:
        given = {
            "name": name,
            "priority": priority,
            "dependencies": dependencies,
            "optional_dependencies": optional_dependencies,
            "boot_timeout": boot_timeout,
            "required": required,
        }
        for attribute, value in given.items():
            if value is not None:
                setattr(self, attribute, value)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            cls._is_named = True
        elif not cls._is_named:
            cls.name = _name_of(cls)
        for step in ("register", "boot", "shutdown"):
            function = vars(cls).get(step)
            if inspect.isfunction(function) and not inspect.iscoroutinefunction(function):
                raise TypeError(
                    f"{cls.__module__}.{cls.__qualname__}.{step} is awaited, but it is a plain "
                    f"function: write `async def {step}`"
                )

    @property
    def is_booted(self) -> bool:
        """True between a successful boot and shutdown."""
        return self.state is ProviderState.BOOTED

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Record bindings. Called once, before anything is built."""

    async def boot(self, container: BootContainerProtocol) -> None:
        """Start what needs starting. Called once, after every provider has registered."""

    async def shutdown(self) -> None:
        """Stop what ``boot`` started. Called once, in the task that ran ``boot``."""

    async def on_error(self, error: Exception, phase: str) -> None:
        """Called when ``boot`` or ``shutdown`` (the ``phase``) raised ``error``."""

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """The provider's own view of its health; HEALTHY unless overridden."""
        return HealthCheckResult(component=self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.state.value}>"


def _name_of(cls: type) -> str:
    return (cls.__name__.removesuffix("Provider") or cls.__name__).lower()
