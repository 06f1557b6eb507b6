"""Hooks: named points where an application listens in (actions) or changes a value (filters)."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


class HookPriority(IntEnum):
    """Order of the handlers of one hook; lower runs first. Any int may be used."""

    EARLIEST = 0
    EARLY = 50
    NORMAL = 100
    LATE = 200
    LATEST = 300


@runtime_checkable
class HookRegistryProtocol(Protocol):
    """Keeps the handlers of this process. Nothing is durable and nothing crosses a process.

    A handler is a function, sync or async. Handlers of one hook run one after the other in the
    caller's task, by priority, equal priorities in the order of registration.
    """

    def register_action(
        self,
        hook_name: str,
        handler: Callable[..., Any],
        priority: int = HookPriority.NORMAL,
        *,
        once: bool = False,
    ) -> None:
        """Call ``handler(**kwargs)`` at every ``call_action(hook_name, **kwargs)``.

        The same handler registered twice is called twice. With ``once`` it is removed before
        its first call, so two concurrent calls of the hook run it only once.
        """
        ...

    def register_filter(
        self,
        hook_name: str,
        handler: Callable[..., Any],
        priority: int = HookPriority.NORMAL,
        *,
        once: bool = False,
    ) -> None:
        """Let ``handler(value, **kwargs)`` replace the value of ``apply_filter``.

        Duplicates and ``once`` as for ``register_action``.
        """
        ...

    def unregister_action(self, hook_name: str, handler: Callable[..., Any]) -> bool:
        """Remove one registration of the handler; False when there is none (left)."""
        ...

    def unregister_filter(self, hook_name: str, handler: Callable[..., Any]) -> bool:
        """Remove one registration of the handler; False when there is none (left)."""
        ...

    async def call_action(self, hook_name: str, /, **kwargs: Any) -> None:
        """Run the actions of the hook and wait for them.

        An exception of a handler is logged and does not reach the caller nor stop the next
        handler: listening in must not break the work. Cancellation passes through.
        """
        ...

    async def apply_filter(self, hook_name: str, value: T, /, **kwargs: Any) -> T:
        """Pass ``value`` through the filters of the hook and return what the last one returned.

        An exception of a filter reaches the caller: a filter may refuse. Without filters the
        value comes back unchanged. The type is a promise of the filters, not checked.
        """
        ...

    def has_action(self, hook_name: str) -> bool:
        """True when there is a listener; ask before building an expensive payload."""
        ...

    def has_filter(self, hook_name: str) -> bool:
        """True when at least one filter is registered."""
        ...

    def clear(self, hook_name: str | None = None) -> None:
        """Forget the handlers of one hook, or of all. Nothing to forget is fine."""
        ...


class NoOpHookRegistry:
    """A registry that never calls anybody: what a library uses when the application has none."""

    def register_action(
        self,
        hook_name: str,
        handler: Callable[..., Any],
        priority: int = HookPriority.NORMAL,
        *,
        once: bool = False,
    ) -> None:
        """Ignored."""

    def register_filter(
        self,
        hook_name: str,
        handler: Callable[..., Any],
        priority: int = HookPriority.NORMAL,
        *,
        once: bool = False,
    ) -> None:
        """Ignored."""

    def unregister_action(self, hook_name: str, handler: Callable[..., Any]) -> bool:
        """False: nothing is ever registered."""
        return False

    def unregister_filter(self, hook_name: str, handler: Callable[..., Any]) -> bool:
        """False: nothing is ever registered."""
        return False

    async def call_action(self, hook_name: str, /, **kwargs: Any) -> None:
        """Nobody listens."""

    async def apply_filter(self, hook_name: str, value: T, /, **kwargs: Any) -> T:
        """The value, unchanged."""
        return value

    def has_action(self, hook_name: str) -> bool:
        """False."""
        return False

    def has_filter(self, hook_name: str) -> bool:
        """False."""
        return False

    def clear(self, hook_name: str | None = None) -> None:
        """Nothing to forget."""
