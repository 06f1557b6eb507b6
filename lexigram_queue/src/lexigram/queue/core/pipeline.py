"""Middleware around handlers: the first one added is the outermost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from lexigram.contracts.queue import BusMessage

Handler: TypeAlias = Callable[[BusMessage], Awaitable[Any]]


class MiddlewareBase(ABC):
    """Something that happens around every message: subclass and override ``process``."""

    @abstractmethod
    async def process(self, message: BusMessage, next_handler: Handler) -> Any:
        """Do your part and ``await next_handler(message)``.

        Without that call the handler does not run and the message counts as handled. What is
        raised counts as the handler's failure.
        """


class MessagePipeline:
    """An ordered set of middleware. Each backend has one, bound by its name."""

    def __init__(self, middleware: Iterable[MiddlewareBase] = ()) -> None:
        self._middleware: list[MiddlewareBase] = list(middleware)

    def __len__(self) -> int:
        return len(self._middleware)

    def add(self, middleware: MiddlewareBase) -> MessagePipeline:
        """Add one inside those that are there; counts for consumers that start afterwards."""
        self._middleware.append(middleware)
        return self

    def wrap(self, handler: Handler, inner: Iterable[MiddlewareBase] = ()) -> Handler:
        """The handler with all middleware around it; ``inner`` is nearest to the handler."""
        for one in reversed([*self._middleware, *inner]):
            handler = partial(_through, one, handler)
        return handler

    async def execute(self, message: BusMessage, handler: Handler) -> Any:
        """Send one message through, and return what came back."""
        return await self.wrap(handler)(message)


def _through(middleware: MiddlewareBase, inner: Handler, message: BusMessage) -> Awaitable[Any]:
    return middleware.process(message, inner)
