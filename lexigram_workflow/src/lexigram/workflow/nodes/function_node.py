"""A function as a node; what it asks for besides the state comes from the container."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, cast

from lexigram.workflow.errors import WorkflowStepError
from lexigram.workflow.graph.node import AbstractWorkflowNode, NodeType


class Services(Protocol):
    """What a function node needs of a container: ``Container`` and its resolvers have it."""

    def entry(
        self, func: Callable[..., Any], /, *, given: Sequence[str] = ()
    ) -> Callable[..., Any]: ...


class FunctionNode(AbstractWorkflowNode):
    """Calls ``function(state, ...)``, sync or async.

    A mapping it returns is what changes, None changes nothing, any other value goes to
    ``output_key``. ``writes`` names the keys of the mapping where the builder should know.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        output_key: str = "output",
        writes: Collection[str] | None = None,
    ) -> None:
        super().__init__(name, NodeType.CUSTOM)
        self._function = function
        self._call = function
        self._output_key = output_key
        self.writes = None if writes is None else frozenset(writes)
        # the services are the parameters that a container must fill
        self._state_name, self.services = first_and_services(function, "the state")

    def bind(self, container: Services) -> FunctionNode:
        """This node with its services from a container; raises when one cannot be had."""
        other = copy.copy(self)
        other._call = container.entry(self._function, given=[self._state_name])  # noqa: SLF001 - a copy
        return other

    async def execute(self, state: dict[str, Any]) -> dict[str, Any]:
        """Call the function."""
        update = self._call(state)
        if inspect.isawaitable(update):
            update = await update
        if isinstance(update, dict):
            return cast("dict[str, Any]", update)
        if update is None:
            return {}
        if isinstance(update, Mapping):
            return dict(cast("Mapping[str, Any]", update))
        return {self._output_key: update}


def first_and_services(function: Callable[..., Any], what: str) -> tuple[str, tuple[str, ...]]:
    """The name of the first parameter, which takes ``what``; then those that have no default."""
    items = [
        item
        for item in inspect.signature(function).parameters.values()
        if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
    ]
    if not items or items[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise WorkflowStepError(
            getattr(function, "__name__", "function"),
            f"its first parameter cannot take {what}",
            hint=f"give it a first parameter for {what}",
        )
    first, *more = items
    return first.name, tuple(item.name for item in more if item.default is item.empty)
