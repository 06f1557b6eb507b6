"""Keep the handlers of hooks and call them in order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from lexigram.concurrency import call
from lexigram.contracts.core.hooks import HookPriority

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., Any])

_log = logging.getLogger(__name__)


class HookRegistry:
    """The hooks of one application. Handlers may be sync or async.

    *Actions* listen: an error of one is logged with its traceback and the next one still runs,
    because an observer must not break what it observes. *Filters* change a value: an error of
    one reaches the caller, because a filter may refuse. Cancellation of the caller passes through
    both; ``SystemExit`` and a cancellation of a handler's own making are errors of that handler,
    and so is a handler that takes longer than the ``timeout`` seconds it is registered with.

    A hook is known by a name, or by the class of its payload::

        hooks.on(MessagePublished, handler)
        if hooks.wants(MessagePublished):
            await hooks.emit(MessagePublished(topic="orders"))

    A handler of a payload class gets the payload as its only argument; handlers of a base class
    do not get payloads of its subclasses. Handlers run one after the other in the caller's
    task: by priority, equal ones in the order of registration. A handler added or removed while
    a hook runs counts from the next run on.
    """

    def __init__(self, name: str = "default") -> None:
        self.name = name
        self._actions: dict[str | type, tuple[_Handler, ...]] = {}
        self._filters: dict[str | type, tuple[_Handler, ...]] = {}

    # --- actions by name ---

    def register_action(
        self,
        hook_name: str,
        handler: Callable[..., Any],
        priority: int = HookPriority.NORMAL,
        *,
        once: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Call ``handler(**kwargs)`` at every ``call_action`` of the hook."""
        _insert(self._actions, hook_name, handler, priority, once=once, timeout=timeout)

    def unregister_action(self, hook_name: str, handler: Callable[..., Any]) -> bool:
        """Remove one registration of the handler; False when there is none."""
        return _remove(self._actions, hook_name, handler)

    async def call_action(self, hook_name: str, /, **kwargs: Any) -> None:
        """Run the actions of the hook and wait for them."""
        await self._run_actions(hook_name, (), kwargs)

    def has_action(self, hook_name: str) -> bool:
        """True when there is a listener; ask before building an expensive payload."""
        return hook_name in self._actions

    def action(
        self,
        hook_name: str,
        priority: int = HookPriority.NORMAL,
        *,
        once: bool = False,
        timeout: float | None = None,
    ) -> Callable[[H], H]:
        """Decorator form of ``register_action``."""

        def register(handler: H) -> H:
            self.register_action(hook_name, handler, priority, once=once, timeout=timeout)
            return handler

        return register

    # --- filters by name ---

    def register_filter(
        self,
        hook_name: str,
        handler: Callable[..., Any],
        priority: int = HookPriority.NORMAL,
        *,
        once: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Let ``handler(value, **kwargs)`` replace the value of ``apply_filter``."""
        _insert(self._filters, hook_name, handler, priority, once=once, timeout=timeout)

    def unregister_filter(self, hook_name: str, handler: Callable[..., Any]) -> bool:
        """Remove one registration of the handler; False when there is none."""
        return _remove(self._filters, hook_name, handler)

    async def apply_filter(self, hook_name: str, value: T, /, **kwargs: Any) -> T:
        """Pass ``value`` through the filters of the hook, each getting what the last returned."""
        for handler in self._filters.get(hook_name, ()):
            if _take(self._filters, hook_name, handler):
                value = await handler.call((value,), kwargs)
        return value

    def has_filter(self, hook_name: str) -> bool:
        """True when at least one filter is registered."""
        return hook_name in self._filters

    def filter(
        self,
        hook_name: str,
        priority: int = HookPriority.NORMAL,
        *,
        once: bool = False,
        timeout: float | None = None,
    ) -> Callable[[H], H]:
        """Decorator form of ``register_filter``."""

        def register(handler: H) -> H:
            self.register_filter(hook_name, handler, priority, once=once, timeout=timeout)
            return handler

        return register

    # --- actions by payload class ---

    def on(
        self,
        payload_type: type[T],
        handler: Callable[[T], Any],
        priority: int = HookPriority.NORMAL,
        *,
        once: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Call ``handler(payload)`` for every emitted payload of exactly this class."""
        _insert(self._actions, payload_type, handler, priority, once=once, timeout=timeout)

    def off(self, payload_type: type[T], handler: Callable[[T], Any]) -> bool:
        """Remove one registration of the handler; False when there is none."""
        return _remove(self._actions, payload_type, handler)

    @property
    def is_idle(self) -> bool:
        """True while no action is registered at all: then no payload needs even its class."""
        return not self._actions

    def wants(self, payload_type: type) -> bool:
        """True when there is a listener; build the payload only then."""
        return payload_type in self._actions

    async def emit(self, payload: object) -> None:
        """Run the actions of the payload's class and wait for them."""
        await self._run_actions(type(payload), (payload,), {})

    # --- all ---

    def names(self) -> list[str]:
        """The hooks that have a listener or a filter, by name or class name, sorted."""
        hooks = self._actions.keys() | self._filters.keys()
        return sorted(hook if isinstance(hook, str) else hook.__qualname__ for hook in hooks)

    def clear(self, hook_name: str | type | None = None) -> None:
        """Forget the handlers of one hook, or of all."""
        for table in (self._actions, self._filters):
            if hook_name is None:
                table.clear()
            else:
                table.pop(hook_name, None)

    async def _run_actions(
        self, hook: str | type, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        for handler in self._actions.get(hook, ()):
            if not _take(self._actions, hook, handler):
                continue
            try:
                await handler.call(args, kwargs)
            except Exception:  # noqa: BLE001 - the boundary to code of others
                name = hook if isinstance(hook, str) else hook.__qualname__
                _log.exception("hook %s: handler %s failed", name, handler.name)


class _Handler(NamedTuple):
    function: Callable[..., Any]
    priority: int
    once: bool
    timeout: float | None

    @property
    def name(self) -> str:
        function = self.function
        return getattr(function, "__qualname__", type(function).__qualname__)

    async def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = partial(self.function, **kwargs) if kwargs else self.function
        return await call(function, *args, timeout=self.timeout, name=f"handler {self.name}")


def _insert(
    table: dict[str | type, tuple[_Handler, ...]],
    hook: str | type,
    function: Callable[..., Any],
    priority: int,
    *,
    once: bool,
    timeout: float | None,
) -> None:
    handlers = [*table.get(hook, ()), _Handler(function, int(priority), once, timeout)]
    # A new tuple each time: a run in progress goes on over the old one. sorted() is stable.
    table[hook] = tuple(sorted(handlers, key=lambda handler: handler.priority))


def _remove(
    table: dict[str | type, tuple[_Handler, ...]], hook: str | type, function: Callable[..., Any]
) -> bool:
    for handler in table.get(hook, ()):
        if handler.function == function:
            return _drop(table, hook, handler)
    return False


def _take(
    table: dict[str | type, tuple[_Handler, ...]], hook: str | type, handler: _Handler
) -> bool:
    """True when the handler is to be called; one for a single use goes to the first who asks."""
    return not handler.once or _drop(table, hook, handler)


def _drop(
    table: dict[str | type, tuple[_Handler, ...]], hook: str | type, handler: _Handler
) -> bool:
    before = table.get(hook, ())
    left = tuple(other for other in before if other is not handler)
    if left:
        table[hook] = left
    else:
        table.pop(hook, None)
    return len(left) < len(before)
