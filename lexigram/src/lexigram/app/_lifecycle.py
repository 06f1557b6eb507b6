"""Providers boot level by level, what they need first, and are taken down in reverse."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
from attrs import define, field, frozen

from lexigram.app.errors import AppShutdownError, AppStartupError
from lexigram.concurrency import call
from lexigram.contracts.core.provider import ProviderState
from lexigram.di.binding import Binding, Kind, eager
from lexigram.di.container import Container
from lexigram.di.errors import PromiseError, ProviderError
from lexigram.di.module import ModuleGraph, ModuleNode
from lexigram.di.provider import Provider
from lexigram.di.resources import Owned

# After the shutdown time is used up, what is left still gets this long, level by level.
LAST_CHANCE_SECONDS = 1.0

Announce = Callable[[Provider, float], Awaitable[None]]  # who has booted, in how many ms

Host = asyncio.Task[Any] | None

log = logging.getLogger(__name__)


@frozen(eq=False)
class ProviderEntry:
    """A provider at its place: the module it belongs to."""

    provider: Provider
    node: ModuleNode


def provider_entries(modules: ModuleGraph) -> list[ProviderEntry]:
    """Every provider, imported modules first; two with one name are refused."""
    entries = [
        ProviderEntry(provider, node) for node in modules.nodes for provider in node.providers
    ]
    by_name: dict[str, ProviderEntry] = {}
    for entry in entries:
        name = entry.provider.name
        other = by_name.setdefault(name, entry)
        if other is not entry:
            raise AppStartupError(
                f'two providers are named "{name}": {type(other.provider).__name__} of '
                f"{other.node.name} and {type(entry.provider).__name__} of {entry.node.name}",
                hint=f'give one another name: {type(entry.provider).__name__}(name="...")',
            )
    return entries


def boot_levels(
    entries: Sequence[ProviderEntry], modules: ModuleGraph, bindings: Iterable[Binding]
) -> list[list[ProviderEntry]]:
    """Groups that boot side by side, one group after the other."""
    by_name = {entry.provider.name: entry for entry in entries}
    before = {entry: _find_dependencies(entry, by_name) for entry in entries}
    _add_imports(before, modules)
    _add_globals(before, modules)
    _add_started(before, bindings)
    levels: list[list[ProviderEntry]] = []
    waiting = list(entries)
    done: set[ProviderEntry] = set()
    while waiting:
        ready = [entry for entry in waiting if before[entry] <= done]
        if not ready:
            raise _circle(waiting, before, done)
        first = min(entry.provider.priority for entry in ready)
        level = [entry for entry in ready if entry.provider.priority == first]
        levels.append(level)
        done.update(level)
        waiting = [entry for entry in waiting if entry not in done]
    return levels


@define(eq=False)
class Lifecycle:
    """The lives of all providers: each from boot to shutdown in one task of its own."""

    container: Container
    boot_timeout: float
    on_death: Callable[[str, BaseException], None]
    announce: Announce
    _levels: list[list[tuple[ProviderEntry, Owned]]] = field(factory=list)
    _failures: list[Exception] = field(factory=list)

    async def boot(self, levels: Sequence[Sequence[ProviderEntry]]) -> None:
        """Boot every level. The first failure cancels its level and is raised by name."""
        host = asyncio.current_task()
        for level in levels:
            booted: list[tuple[ProviderEntry, Owned]] = []
            self._levels.append(booted)
            try:
                async with anyio.create_task_group() as tasks:
                    for entry in level:
                        boot = partial(call, self._boot, entry, booted, host, host=host)
                        tasks.start_soon(boot, name=f"boot {entry.provider.name}")
            except BaseExceptionGroup as group:
                first = _first(group)
                raise first from first.__cause__

    async def shutdown(self, timeout: float, error: BaseException | None = None) -> None:
        """Shut down all that booted, in reverse, then the container's resources.

        One that raises or hangs does not keep the others from being stopped; all failures are
        raised together in one AppShutdownError.
        """
        deadline = anyio.current_time() + timeout
        while self._levels:
            level = self._levels.pop()
            await self._within(deadline, self._shutdown_level, level)
        await self._within(deadline, self._close_container, error)
        failures, self._failures = self._failures, []
        if failures:
            raise _not_clean(failures, timeout)

    async def _boot(
        self, entry: ProviderEntry, booted: list[tuple[ProviderEntry, Owned]], host: Host
    ) -> None:
        provider = entry.provider
        owned = Owned(
            f"provider {provider.name}",
            self._live(entry),
            lambda error: self.on_death(f"provider {provider.name}", error),
        )
        began = time.perf_counter()
        try:
            await self._start(provider, owned)
        except Exception as error:
            provider.state = ProviderState.FAILED
            await self._tell(provider, error, "boot", host)
            if provider.required:
                raise _boot_failed(entry, error) from error
            log.warning("provider %s failed to boot: %r", provider.name, error)
            return
        provider.state = ProviderState.BOOTED
        booted.append((entry, owned))
        await self.announce(provider, (time.perf_counter() - began) * 1000)

    async def _start(self, provider: Provider, owned: Owned) -> None:
        seconds = self._limit(provider)
        # Not anyio's: a cancel scope for each of 50 providers is a tenth of the whole start.
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await owned.start()
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"boot did not finish within {seconds:g} s") from None
            raise

    def _limit(self, provider: Provider) -> float:
        return provider.boot_timeout or self.boot_timeout

    async def _live(self, entry: ProviderEntry) -> AsyncGenerator[None, None]:
        """Boot, stay, shut down: one generator, so that it all happens in its owner task."""
        provider = entry.provider
        await self.container.start(provider)
        view = self.container.boot_view(entry.node, provider)
        await call(provider.boot, view)
        view.end_boot()
        broken = self.container.broken_promises(provider)
        if broken:
            raise PromiseError(
                f"{', '.join(broken)} was promised in register() and not bound in boot()",
                hint=f"call container.bind({broken[0]}, value) in boot()",
            )
        try:
            yield
        finally:
            await call(provider.shutdown)

    async def _within(
        self, deadline: float, step: Callable[..., Awaitable[None]], *args: Any
    ) -> None:
        seconds = max(deadline - anyio.current_time(), LAST_CHANCE_SECONDS)
        with anyio.move_on_after(seconds):
            await step(*args)

    async def _shutdown_level(self, level: list[tuple[ProviderEntry, Owned]]) -> None:
        host = asyncio.current_task()
        async with anyio.create_task_group() as tasks:
            for entry, owned in level:
                tasks.start_soon(self._shutdown, entry.provider, owned, host)

    async def _shutdown(self, provider: Provider, owned: Owned, host: Host) -> None:
        try:
            await owned.stop()
        except Exception as error:  # noqa: BLE001 - the others must be stopped too
            self._failures.append(_shutdown_failed(provider.name, error))
            await self._tell(provider, error, "shutdown", host)
        except BaseException:
            late = TimeoutError("shutdown did not finish in time and was cancelled")
            self._failures.append(_shutdown_failed(provider.name, late))
            raise
        finally:
            provider.state = ProviderState.SHUTDOWN

    async def _tell(self, provider: Provider, error: Exception, phase: str, host: Host) -> None:
        limit, tell = self._limit(provider), provider.on_error
        try:
            await call(tell, error, phase, timeout=limit, name="on_error", host=host)
        except Exception:
            log.exception("on_error of provider %s failed", provider.name)

    async def _close_container(self, error: BaseException | None) -> None:
        try:
            await self.container.aclose(error)
        except Exception as failure:  # noqa: BLE001 - raised with the others
            self._failures.append(failure)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure that cancelled the level; siblings that failed too are noted on it."""
    first, *others = group.exceptions
    if isinstance(first, BaseExceptionGroup):
        return _first(first)
    for other in others:
        first.add_note(f"another provider of the same level failed too: {other}")
    return first


def _boot_failed(entry: ProviderEntry, error: Exception) -> ProviderError:
    return ProviderError(
        f'provider "{entry.provider.name}" of {entry.node.name} failed to boot: '
        f"{type(error).__name__}: {error}",
        provider=entry.provider.name,
        phase="boot",
        hint="the cause is above; required=False lets the application run without this provider",
    )


def _shutdown_failed(name: str, error: Exception) -> ProviderError:
    failure = ProviderError(
        f'provider "{name}" failed to shut down: {type(error).__name__}: {error}',
        provider=name,
        phase="shutdown",
    )
    failure.__cause__ = error
    return failure


def _not_clean(failures: list[Exception], timeout: float) -> AppShutdownError:
    names = [
        failure.provider if isinstance(failure, ProviderError) else type(failure).__name__
        for failure in failures
    ]
    return AppShutdownError(
        f"not everything stopped cleanly within {timeout:g} s: {', '.join(names)}",
        details={"failed": names},
        cause=ExceptionGroup("shutdown failures", failures),
    )


# --- order: declared dependencies, module imports, then priority ---


def _find_dependencies(
    entry: ProviderEntry, by_name: Mapping[str, ProviderEntry]
) -> set[ProviderEntry]:
    found = set()
    for name in entry.provider.dependencies:
        if name not in by_name:
            from difflib import get_close_matches  # for who made a mistake only

            near = get_close_matches(name, by_name, n=1)
            meant = f' (did you mean "{near[0]}"?)' if near else ""
            raise AppStartupError(
                f'provider "{entry.provider.name}" depends on "{name}", which does not exist{meant}',
                hint=f"there are: {', '.join(sorted(by_name))}",
            )
        found.add(by_name[name])
    found |= {by_name[name] for name in entry.provider.optional_dependencies if name in by_name}
    return found


def _add_imports(before: dict[ProviderEntry, set[ProviderEntry]], modules: ModuleGraph) -> None:
    """Providers of imported modules come first, through modules without providers too."""
    for entry, earlier in before.items():
        # The root imports everything, but what it registers serves all: only priority counts.
        if entry.node is not modules.root:
            below = _closure(entry.node)
            earlier |= {other for other in before if other.node in below}


def _add_globals(before: dict[ProviderEntry, set[ProviderEntry]], modules: ModuleGraph) -> None:
    """A global module is imported by all, except by those it needs itself."""
    for source in before:
        if not source.node.is_global or source.node is modules.root:
            continue
        needed = _closure(source.node) | {source.node}
        for entry, earlier in before.items():
            others = entry.node not in needed and entry.node is not modules.root
            if others and not entry.node.is_global:
                earlier.add(source)


def _add_started(
    before: dict[ProviderEntry, set[ProviderEntry]], bindings: Iterable[Binding]
) -> None:
    """What starts with one provider may stand on what another one makes in its boot."""
    by_provider = {entry.provider: entry for entry in before}
    for binding in bindings:
        if not binding.is_singleton or binding.owner is None or not _starts(binding):
            continue
        entry = by_provider.get(binding.owner)
        for owner in _owners(binding):
            other = by_provider.get(owner)
            if entry is not None and other is not None and entry not in _reach(before, other):
                before[entry].add(other)


def _starts(binding: Binding) -> bool:
    return binding.kind in (Kind.COROUTINE, Kind.GENERATOR, Kind.ASYNC_GENERATOR)


def _owners(binding: Binding) -> set[Provider]:
    found: set[Provider] = set()
    pending, seen = [binding], {binding}
    while pending:
        for dependency in eager(pending.pop().provider):
            if dependency not in seen:
                seen.add(dependency)
                pending.append(dependency)
                if dependency.owner is not None and dependency.owner is not binding.owner:
                    found.add(dependency.owner)
    return found


def _closure(node: ModuleNode) -> set[ModuleNode]:
    found: set[ModuleNode] = set()
    pending = list(node.imports)
    while pending:
        step = pending.pop()
        if step not in found:
            found.add(step)
            pending.extend(step.imports)
    return found


def _reach(
    before: dict[ProviderEntry, set[ProviderEntry]], start: ProviderEntry
) -> set[ProviderEntry]:
    found = {start}
    pending = [start]
    while pending:
        for earlier in before[pending.pop()]:
            if earlier not in found:
                found.add(earlier)
                pending.append(earlier)
    return found


def _circle(
    waiting: Sequence[ProviderEntry],
    before: dict[ProviderEntry, set[ProviderEntry]],
    done: set[ProviderEntry],
) -> AppStartupError:
    path = [waiting[0]]
    while True:
        step = next(entry for entry in waiting if entry in before[path[-1]] - done)
        if step in path:
            names = [entry.provider.name for entry in [*path[path.index(step) :], step]]
            return AppStartupError(
                f"providers wait for each other: {' -> '.join(names)}",
                hint="take one name out of dependencies=, or one import out of its module",
            )
        path.append(step)
