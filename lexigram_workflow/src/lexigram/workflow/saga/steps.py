"""Steps written as methods: ``@saga_step(compensation="refund")``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from attrs import frozen

from lexigram.contracts.workflow.types import SagaStep
from lexigram.workflow.saga.errors import SagaDefinitionError

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


@frozen(kw_only=True)
class _Marked:
    name: str
    compensation: str | Callable[..., Awaitable[Any]] | None
    max_retries: int
    retry_delay: float
    idempotent: bool


def saga_step(
    name: str | None = None,
    *,
    compensation: str | Callable[..., Awaitable[Any]] | None = None,
    max_retries: int = 1,
    retry_delay: float = 1.0,
    idempotent: bool = True,
) -> Callable[[F], F]:
    """Make a method a step of its saga; steps run in the order in which they are written.

    ``compensation`` is a method of the saga, or its name.
    """

    def mark(method: F) -> F:
        step = name or method.__name__
        method.__saga_step__ = _Marked(  # type: ignore[attr-defined]
            name=step,
            compensation=compensation,
            max_retries=max_retries,
            retry_delay=retry_delay,
            idempotent=idempotent,
        )
        method.__saga_step_name__ = step  # type: ignore[attr-defined]
        method.__saga_compensation__ = compensation  # type: ignore[attr-defined]
        return method

    return mark


def marked_steps(saga: object) -> Iterator[SagaStep]:
    """The steps among the methods of a saga: those of its base classes first."""
    for attribute, marked in _marked(type(saga)):
        yield SagaStep(
            marked.name,
            getattr(saga, attribute),
            _bound(saga, marked),
            max_retries=marked.max_retries,
            retry_delay=marked.retry_delay,
            idempotent=marked.idempotent,
        )


def marked_step_names(saga_type: type[object]) -> list[str]:
    """The names of the steps among the methods of a saga class, in their order."""
    return [marked.name for _, marked in _marked(saga_type)]


def _marked(saga_type: type[object]) -> Iterator[tuple[str, _Marked]]:
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
    name = marked.compensation
    if not isinstance(name, str):
        name = getattr(name, "__name__", repr(name))
    method: Callable[[], Awaitable[Any]] | None = getattr(saga, name, None)
    if method is None:
        raise SagaDefinitionError(
            f"step {marked.name!r} of {type(saga).__name__}: there is no method {name!r}",
            hint="compensation= is a method of the same saga, or its name",
        )
    return method
