"""Handlers of jobs: ``@job("send_mail")`` declares one, ``Handler`` calls it for a job."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, get_type_hints

from attrs import field, frozen

from lexigram.concurrency import call_in_thread, is_retryable
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.infra.resilience.types import RetryConfig
from lexigram.contracts.infra.tasks.errors import JobRefusedError
from lexigram.contracts.infra.tasks.types import (
    DEFAULT_MAX_DELIVERIES,
    DEFAULT_MAX_RETRIES,
    DEFAULT_QUEUE,
)
from lexigram.di.signature import is_service, parameters
from lexigram.resilience.retrying import delay_after
from lexigram.serialization import structure
from lexigram.tasks.context import JobContext, current_job

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__lexigram_job__"
_NOTHING = inspect.Parameter.empty
_BY_POSITION = inspect.Parameter.POSITIONAL_ONLY
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@frozen(kw_only=True)
class JobRetry:
    """Which errors of a handler are tried again, and when. ``abort_on`` wins over ``retry_on``.

    An error with ``is_retryable = False`` is never tried again.

    How often is ``max_retries`` of the job. Waits grow by ``factor`` up to ``max_delay``; with
    jitter each is drawn between 0 and its length, so that jobs that failed together spread.
    """

    base_delay: float = 1.0
    max_delay: float = 300.0
    factor: float = 2.0
    jitter: bool = True
    retry_on: tuple[type[Exception], ...] = (Exception,)
    # Data that do not fit the handler fit it no better the second time.
    abort_on: tuple[type[Exception], ...] = ()

    def wants(self, error: Exception) -> bool:
        """True when another attempt may help."""
        if isinstance(error, self.abort_on) or not is_retryable(error):
            return False
        return isinstance(error, self.retry_on)

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the attempt of this number; 1 is the first."""
        config = RetryConfig(
            base_delay=self.base_delay,
            max_delay=self.max_delay,
            backoff_factor=self.factor,
            jitter=self.jitter,
        )
        return delay_after(config, attempt, random.random)


@frozen(kw_only=True)
class JobDefinition:
    """A handler and what its jobs are like unless the caller says otherwise."""

    name: str
    function: Callable[..., Any]
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_retries: int = DEFAULT_MAX_RETRIES
    timeout: float | None = None
    max_deliveries: int = DEFAULT_MAX_DELIVERIES
    result_ttl: float | None = None
    retry: JobRetry = field(factory=JobRetry)

    @property
    def settings(self) -> dict[str, Any]:
        """As keys of what ``enqueue`` takes."""
        return {
            "queue": self.queue,
            "priority": self.priority,
            "max_retries": self.max_retries,
            "timeout": self.timeout,
            "max_deliveries": self.max_deliveries,
            "result_ttl": self.result_ttl,
        }


def job(
    name: str | None = None,
    *,
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    max_retries: int = DEFAULT_MAX_RETRIES,
    timeout: float | None = None,
    max_deliveries: int = DEFAULT_MAX_DELIVERIES,
    result_ttl: float | None = None,
    retry: JobRetry | None = None,
) -> Callable[[F], F]:
    """Declare a function as the handler of the jobs of a name; it stays a plain function.

    ::

        @job("send_mail", max_retries=5, timeout=30)
        async def send_mail(to: str, mailer: Mailer, context: JobContext) -> None: ...

    Parameters whose type the container provides are services, a ``JobContext`` is the running
    job, all others are arguments of the job. A plain function runs in a thread.
    """

    def declare(function: F) -> F:
        definition = JobDefinition(
            name=name or function.__name__,
            function=function,
            queue=queue,
            priority=priority,
            max_retries=max_retries,
            timeout=timeout,
            max_deliveries=max_deliveries,
            result_ttl=result_ttl,
            retry=retry or JobRetry(),
        )
        setattr(function, _MARK, definition)
        return function

    return declare


def definition_of(handler: Any, name: str | None = None) -> JobDefinition:
    """What ``@job`` recorded; for a function without it, a definition under ``name``."""
    found = getattr(handler, _MARK, None)
    if isinstance(found, JobDefinition) and name in (None, found.name):
        return found
    if name is None or not callable(handler):
        shown = getattr(handler, "__qualname__", repr(handler))
        raise JobRefusedError(
            f"{shown} is no handler of a job", hint='put @job("name") above the function'
        )
    return JobDefinition(name=name, function=handler)


class Services(Protocol):
    """The part of a container that a handler needs."""

    def sees(self, service: Any, /) -> bool: ...

    def entry(self, func: Callable[..., Any], /, *, given: Sequence[str] = ()) -> Any: ...


@frozen
class _Argument:
    name: str
    annotation: Any
    default: Any
    by_position: bool
    is_context: bool


class Handler:
    """``await handler(*args, **kwargs)`` with the arguments of a job, as they come from the queue.

    With ``services`` it opens a scope of the container per call and takes services from it.
    Arguments are made into the annotated types; what does not fit is a JobRefusedError.
    """

    def __init__(self, definition: JobDefinition, services: Services | None = None) -> None:
        self.definition = definition
        function = definition.function
        signature = inspect.signature(function)
        self._takes_any = any(p.kind in _VARIABLE for p in signature.parameters.values())
        injected = set() if services is None else _find_injected(function, services)
        if injected and self._takes_any:
            raise JobRefusedError(
                f"the handler of {definition.name!r} takes services and *args or **kwargs",
                hint="name the arguments of the job",
            )
        self._arguments = [
            argument
            for argument in _arguments(function, signature)
            if argument.name not in injected
        ]
        self._given = [item for item in self._arguments if not item.is_context]
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self._entry: Callable[..., Any] | None = None
        if injected and services is not None:
            names = [item.name for item in self._arguments]
            self._entry = services.entry(function, given=names)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function once; its exception reaches the caller."""
        function = self.definition.function
        if self._takes_any:
            call: Callable[[], Any] = functools.partial(function, *args, **kwargs)
        else:
            values = self._values(args, kwargs)
            call = self._prepare(function, values)
        if self._is_async:
            return await call()
        # A thread cannot be cancelled: the job is over when it is.
        result = await call_in_thread(call)
        return await result if inspect.isawaitable(result) else result

    def _prepare(self, function: Callable[..., Any], values: list[Any]) -> Callable[[], Any]:
        if self._entry is not None:
            return functools.partial(self._entry, *values)
        pairs = list(zip(self._arguments, values, strict=True))
        by_position = [value for item, value in pairs if item.by_position]
        by_name = {item.name: value for item, value in pairs if not item.by_position}
        return functools.partial(function, *by_position, **by_name)

    def _values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """A value for every argument, in the order of the parameters."""
        left = dict(kwargs)
        if len(args) > len(self._given):
            raise self._misfit(f"takes {len(self._given)} arguments, {len(args)} were given")
        for item, value in zip(self._given, args, strict=False):
            if item.name in left:
                raise self._misfit(f"got {item.name!r} twice")
            left[item.name] = value
        values = [self._value(item, left) for item in self._arguments]
        if left:
            raise self._misfit(f"has no argument {', '.join(sorted(left))}")
        return values

    def _value(self, item: _Argument, left: dict[str, Any]) -> Any:
        if item.is_context:
            return current_job()
        value = left.pop(item.name, _NOTHING)
        if value is _NOTHING:
            if item.default is _NOTHING:
                raise self._misfit(f"needs an argument {item.name!r}")
            return item.default
        if item.annotation is _NOTHING or type(value) is item.annotation:
            return value
        try:
            return structure(value, item.annotation)
        except LexigramError as error:
            raise self._misfit(f"cannot take {item.name!r}: {error.message}") from error

    def _misfit(self, problem: str) -> JobRefusedError:
        name = self.definition.name
        return JobRefusedError(
            f"the handler of {name!r} {problem}",
            details={"name": name},
            hint=f"its arguments are {', '.join(item.name for item in self._given) or 'none'}",
        )

    def __repr__(self) -> str:
        return f"<Handler {self.definition.name!r}>"


def context_names(function: Callable[..., Any]) -> list[str]:
    """Names of the parameters that get the running job."""
    return [item.name for item in parameters(function) if item.key is JobContext]


def _find_injected(function: Callable[..., Any], services: Services) -> set[str]:
    """Names of the parameters that the container fills."""
    return {
        item.name
        for item in parameters(function)
        if item.key is not JobContext and is_service(item, services.sees)
    }


def _arguments(function: Callable[..., Any], signature: inspect.Signature) -> list[_Argument]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        hints = {}  # a name that exists for the type checker only: the value is passed as it is
    return [
        _Argument(
            item.name,
            _usable(hints.get(item.name, _NOTHING)),
            item.default,
            item.kind is _BY_POSITION,
            hints.get(item.name) is JobContext,
        )
        for item in signature.parameters.values()
        if item.kind not in _VARIABLE
    ]


def _usable(annotation: Any) -> Any:
    return _NOTHING if annotation in (Any, object) else annotation
