"""Steps written as methods: ``@saga_step(compensation="refund")``."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from attrs import frozen

from lexigram.contracts.workflow.types import SagaStep
from lexigram.di.binding import Site
from lexigram.di.signature import constructor_site
from lexigram.workflow.saga.errors import SagaDefinitionError

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


@frozen(kw_only=True)
class _Marked:
    name: str
    compensation: str | Callable[..., Awaitable[Any]] | None
    max_retries: int
    retry_delay: float
    idempotent: bool
    timeout: float | None


def saga_step(
    name: str | None = None,
    *,
    compensation: str | Callable[..., Awaitable[Any]] | None = None,
    max_retries: int = 1,
    retry_delay: float = 1.0,
    idempotent: bool = True,
    timeout: float | None = None,
) -> Callable[[F], F]:
    """Make a method a step of its saga; steps run in the order in which they are written.

    ``compensation`` is a method of the saga, or its name; ``timeout`` is for each call of either.
    """

    def mark(method: F) -> F:
        step = name or method.__name__
        method.__saga_step__ = _Marked(  # type: ignore[attr-defined]
            name=step,
            compensation=compensation,
            max_retries=max_retries,
            retry_delay=retry_delay,
            idempotent=idempotent,
            timeout=timeout,
        )
        method.__saga_step_name__ = step  # type: ignore[attr-defined]
        method.__saga_compensation__ = compensation  # type: ignore[attr-defined]
        return method

    return mark


def marked_steps(saga: object) -> Iterator[SagaStep]:
    """The steps among the methods of a saga: those of its base classes first."""
    for attribute, marked in _list_marked(type(saga)):
        yield SagaStep(
            marked.name,
            getattr(saga, attribute),
            _bound(saga, marked),
            max_retries=marked.max_retries,
            retry_delay=marked.retry_delay,
            idempotent=marked.idempotent,
            timeout=marked.timeout,
        )


def marked_step_names(saga_type: type[object]) -> list[str]:
    """The names of the steps among the methods of a saga class, in their order."""
    return [marked.name for _, marked in _list_marked(saga_type)]


def check_marks(saga_type: type[object]) -> Iterator[SagaDefinitionError]:
    """What is wrong with the marked methods of a saga class and with their compensations."""
    for attribute, marked in _list_marked(saga_type):
        step = f"step {marked.name!r} of {saga_type.__qualname__}"
        yield from _check_call(step, getattr(saga_type, attribute))
        if marked.compensation is None:
            continue
        name = _method_name(marked)
        method = getattr(saga_type, name, None)
        if method is None:
            yield _no_method(step, name)
        else:
            yield from _check_call(f"the compensation {name!r} of {step}", method)


def _check_call(what: str, method: Callable[..., Any]) -> Iterator[SagaDefinitionError]:
    """A method that is called with nothing but its saga."""
    try:
        inspect.signature(method).bind(None)
    except TypeError as error:
        yield SagaDefinitionError(
            f"{what} is called without arguments: {error}{_site(method)}",
            hint="keep what it needs in the saga: its constructor takes services and input",
        )


def _site(method: Callable[..., Any]) -> str:
    site = constructor_site(method)
    return "" if site is None else f"\n{Site(*site)}"


def _no_method(step: str, name: str) -> SagaDefinitionError:
    return SagaDefinitionError(
        f"{step}: there is no method {name!r}",
        hint="compensation= is a method of the same saga, or its name",
    )


def _method_name(marked: _Marked) -> str:
    found = marked.compensation
    return found if isinstance(found, str) else getattr(found, "__name__", repr(found))


def _list_marked(saga_type: type[object]) -> Iterator[tuple[str, _Marked]]:
    seen: dict[str, None] = {}
    for cls in reversed(saga_type.__mro__):
        seen.update(dict.fromkeys(vars(cls)))
    for attribute in seen:
        marked = getattr(getattr(saga_type, attribute, None), "__saga_step__", None)
        if isinstance(marked, _Marked):
            yield attribute, marked


def _bound(saga: object, marked: _Marked) -> Callable[[], Awaitable[Any]] | None:
    if marked.compensation is None:
        return None
    name = _method_name(marked)
    method: Callable[[], Awaitable[Any]] | None = getattr(saga, name, None)
    if method is None:
        raise _no_method(f"step {marked.name!r} of {type(saga).__name__}", name)
    return method
