"""One value through several functions, sync or async."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from attrs import frozen

from lexigram.concurrency import call
from lexigram.workflow._limits import check_time_limit

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    In = TypeVarWithDefault("In", default=Any)
    Out = TypeVarWithDefault("Out", default=In)
else:
    In, Out = TypeVar("In"), TypeVar("Out")

V = TypeVar("V")


class TransformPipe(Generic[In, Out]):
    """An immutable pipe: every method returns a new one, and type checkers follow the value.

    ``TransformPipe[Request]()`` takes a Request; ``pipe`` decides what comes out. A step that takes
    longer than ``timeout`` seconds is cancelled and fails with a TimeoutError.
    """

    def __init__(
        self,
        steps: Sequence[Callable[..., Any]] | None = None,
        error_handler: Callable[[Exception, Any], Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        check_time_limit("timeout", timeout)
        self._stages = tuple(_Stage(step) for step in steps or ())
        self._error_handler = error_handler
        self._timeout = timeout

    if not TYPE_CHECKING:

        def __class_getitem__(cls, item: Any) -> Any:
            # One type stands for both: typing of Python 3.11 knows no defaults.
            return super().__class_getitem__(item if isinstance(item, tuple) else (item, item))

    @overload
    def pipe(self, step: Callable[..., Awaitable[V]]) -> TransformPipe[In, V]: ...
    @overload
    def pipe(self, step: Callable[..., V]) -> TransformPipe[In, V]: ...
    def pipe(self, step: Callable[..., Any]) -> TransformPipe[In, Any]:
        """Then ``step(value, **kwargs)``: what it returns goes on."""
        return self._with(_Stage(step))

    def pipe_if(
        self,
        predicate: Callable[[Out], bool | Awaitable[bool]],
        step: Callable[..., Out | Awaitable[Out]],
    ) -> TransformPipe[In, Out]:
        """The same where ``predicate(value)`` holds; else the value goes on as it is."""
        return self._with(_Stage(step, predicate=predicate))

    def tap(self, side_effect: Callable[[Out], Any]) -> TransformPipe[In, Out]:
        """Call ``side_effect(value)``; the value goes on as it is."""
        return self._with(_Stage(side_effect, keeps=True))

    def catch(self, handler: Callable[[Exception, Any], Any]) -> TransformPipe[In, Out]:
        """``handler(error, value)`` for what a step raised for a value; what it returns is the
        result, and the steps that are left are not run. A second handler replaces the first.
        """
        return self._with(handler=handler)

    async def execute(self, value: In, **kwargs: Any) -> Out:
        """Send a value through; ``kwargs`` go to the steps of ``pipe`` and ``pipe_if``."""
        current: Any = value
        for stage in self._stages:
            try:
                current = await call(
                    stage.run, current, kwargs, timeout=self._timeout, name=stage.name
                )
            except Exception as error:
                if self._error_handler is None:
                    raise
                return cast("Out", await call(self._error_handler, error, current))
        return cast("Out", current)

    def __len__(self) -> int:
        return len(self._stages)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"TransformPipe(steps={len(self._stages)})"

    def _with(
        self, *more: _Stage, handler: Callable[[Exception, Any], Any] | None = None
    ) -> TransformPipe[In, Any]:
        other: TransformPipe[In, Any] = TransformPipe(
            (), handler or self._error_handler, timeout=self._timeout
        )
        other._stages = (*self._stages, *more)
        return other


@frozen
class _Stage:
    function: Callable[..., Any]
    predicate: Callable[..., Any] | None = None
    # True: the value goes on, whatever the function returns
    keeps: bool = False

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__qualname__)

    async def run(self, value: Any, kwargs: dict[str, Any]) -> Any:
        if self.predicate is not None and not await _await_value(self.predicate(value)):
            return value
        result = await _await_value(self.function(value, **({} if self.keeps else kwargs)))
        return value if self.keeps else result


async def _await_value(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
