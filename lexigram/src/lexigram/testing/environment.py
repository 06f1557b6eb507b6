"""Boot an application for a test, with fakes where it would reach outside."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from lexigram.app import Application
from lexigram.di import Container, DynamicModule, Provider, Scope
from lexigram.di.decorators import marked_lifetime

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from lexigram.config import LexigramConfig

T = TypeVar("T")

AppFactory: TypeAlias = "Callable[[], Application | Awaitable[Application]]"
# A module, a provider or marked class, an application that was not started, or what makes one.
Part: TypeAlias = "type[Any] | DynamicModule | Provider | Application | AppFactory"


@asynccontextmanager
async def boot(
    *parts: Part,
    overrides: Mapping[Any, Any] | None = None,
    config: LexigramConfig | Mapping[str, Any] | None = None,
) -> AsyncIterator[Application]:
    """A running application, with fakes where it would reach outside.

    ``async with boot(MailModule, overrides={Mailer: fake}) as app``

    ``parts`` are modules, providers, or one application or function that makes it; modules and
    providers beside an application are added to it. ``overrides`` are in place before anything
    is built. Without an application no file and no variable is read: the configuration is
    ``config``, with ``env`` "test" unless it says otherwise.
    """
    async with await _compose(parts, overrides or {}, config) as app:
        yield app


def override(
    target: Application | Container | TestEnvironment, service: TypeForm[T], fake: T
) -> AbstractAsyncContextManager[T]:
    """A service replaced while a block lasts.

    ``async with override(app, Mailer, fake)``

    Reaches what was already built on the service; references a test took before keep what
    they have. Refused where it could not reach: use ``overrides=`` of ``boot`` then.
    """
    container = target if isinstance(target, Container) else target.container
    return container.override(service, fake)


class TestEnvironment:
    """``boot`` as an object, for fixtures and helpers: the application and short ways into it."""

    __test__ = False  # the name starts with Test, but it is no test

    def __init__(
        self,
        *parts: Part,
        overrides: Mapping[Any, Any] | None = None,
        config: LexigramConfig | Mapping[str, Any] | None = None,
    ) -> None:
        self._booted = boot(*parts, overrides=overrides, config=config)
        self._app: Application | None = None

    @property
    def app(self) -> Application:
        """The running application."""
        if self._app is None:
            raise RuntimeError("the environment is not started: `async with TestEnvironment(...)`")
        return self._app

    @property
    def container(self) -> Container:
        """The container of the running application."""
        return self.app.container

    def get(self, service: TypeForm[T]) -> T:
        """The service, as the application itself sees it."""
        return self.container.get(service)

    async def resolve(self, service: TypeForm[T]) -> T:
        """The service, built with ``await`` where needed."""
        return await self.container.resolve(service)

    def scope(self) -> Scope:
        """A new scope of the container."""
        return self.container.scope()

    def override(self, service: TypeForm[T], fake: T) -> AbstractAsyncContextManager[T]:
        """Replace a service while the block lasts."""
        return override(self, service, fake)

    async def __aenter__(self) -> Self:
        self._app = await self._booted.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._booted.__aexit__(kind, error, traceback)


async def _compose(
    parts: tuple[Part, ...],
    overrides: Mapping[Any, Any],
    config: LexigramConfig | Mapping[str, Any] | None,
) -> Application:
    apps = [part for part in parts if _makes_application(part)]
    providers: list[Any] = [part for part in parts if _is_provider(part)]
    if len(apps) > 1:
        raise TypeError(f"boot takes one application, not {len(apps)}")
    if apps and config is not None:
        raise TypeError("config= is for modules; give it to the application where that is made")
    app = await _make_application(apps[0]) if apps else Application("test", _test_config(config))
    app.add_providers(providers)
    known = {id(part) for part in (*apps, *providers)}
    modules: list[Any] = [part for part in parts if id(part) not in known]
    app.add_modules(modules)
    app.add_overrides(overrides)
    return app


def _makes_application(part: Any) -> bool:
    if isinstance(part, type):
        return issubclass(part, Application)
    return isinstance(part, Application) or (
        callable(part) and not isinstance(part, DynamicModule | Provider)
    )


def _is_provider(part: Any) -> bool:
    return isinstance(part, Provider) or (
        isinstance(part, type) and (issubclass(part, Provider) or marked_lifetime(part) is not None)
    )


async def _make_application(part: Any) -> Application:
    app = part if isinstance(part, Application) else part()
    if inspect.isawaitable(app):
        app = await app
    if not isinstance(app, Application):
        raise TypeError(f"{part!r} made {app!r}, which is not an Application")
    return app


def _test_config(config: LexigramConfig | Mapping[str, Any] | None) -> LexigramConfig:
    from lexigram.config import LexigramConfig

    if isinstance(config, LexigramConfig):
        return config
    return LexigramConfig.from_dict({"env": "test", **(config or {})})
