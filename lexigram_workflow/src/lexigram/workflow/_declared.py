"""Finds the workflows that an application names, and makes them ready to run."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, TypeAlias, cast, get_type_hints

import anyio
from attrs import frozen

from lexigram.contracts.core.di import ContainerRegistrarProtocol
from lexigram.contracts.domain.events import DomainEvent
from lexigram.workflow.core.definition import WorkflowDefinition
from lexigram.workflow.errors import GraphProblem, GraphValidationError, PipelineValidationError
from lexigram.workflow.graph.builder import WorkflowBuilder
from lexigram.workflow.graph.engine import WorkflowEngine
from lexigram.workflow.nodes.function_node import Services
from lexigram.workflow.pipeline.pipeline import Pipeline
from lexigram.workflow.pipeline.steps import FunctionStep
from lexigram.workflow.saga.base import AbstractSaga
from lexigram.workflow.saga.steps import check_marks

# A pipeline, a graph, something marked with @workflow, or a module with such things in it.
Declared: TypeAlias = Any

Runnable: TypeAlias = Pipeline | WorkflowEngine | type[AbstractSaga[Any]]


class MakingServices(Services, Protocol):
    """A container that can also call what makes a workflow."""

    async def call(self, func: Any, /, *args: Any, **kwargs: Any) -> Any: ...


@frozen(kw_only=True)
class Workflow:
    """One workflow of the application."""

    definition: WorkflowDefinition
    runnable: Runnable
    on: type[DomainEvent] | None = None


def find_in(items: Iterable[Declared]) -> list[Any]:
    """The workflows that were named; modules, also by name, are looked through with all below."""
    found: dict[int, Any] = {}
    for item in items:
        inside = _in_module(import_module(item) if isinstance(item, str) else item)
        found.update((id(each), each) for each in inside)
    return list(found.values())


async def check_declared(items: Sequence[Declared], container: ContainerRegistrarProtocol) -> None:
    """Have what workflows ask for checked when the graph is frozen; nothing is made or run."""
    if not items:
        return
    # Modules are imported, which reads files.
    for item in await anyio.to_thread.run_sync(find_in, items):
        facts = _facts(item)
        named: Any = getattr(item, "name", None) or getattr(item, "__name__", None)
        name = str(facts.get("name") or named)
        if inspect.isclass(item) and issubclass(item, AbstractSaga):
            _check_saga(cast("Any", item), name, container)
        elif inspect.isfunction(item) and facts and _makes(item):
            container.check_entry(item, role=f"workflow {name!r}")
        else:
            _check_functions(item, name, container)


def _check_saga(
    saga: type[AbstractSaga[Any]], name: str, container: ContainerRegistrarProtocol
) -> None:
    container.check_entry(saga, arguments=True, role=f"saga {name!r}")
    for error in check_marks(saga):
        container.report(error)


def _check_functions(item: Any, name: str, container: ContainerRegistrarProtocol) -> None:
    """Those in the nodes of a graph or the steps of a pipeline, by having them bound."""
    checking = _Checking(name, container)
    if inspect.isfunction(item):
        item = Pipeline(name, [FunctionStep(name, item)])
    if isinstance(item, Pipeline):
        # What else it lacks here, such as who approves, is asked again with all of that in boot.
        with suppress(PipelineValidationError):
            item.equip(container=checking).validate()
    elif isinstance(item, WorkflowEngine):
        item.equip(container=checking)
    elif isinstance(item, WorkflowBuilder):
        item.build(container=checking)


class _Checking:
    """In the place of a container: what is asked of it is checked at the freeze."""

    def __init__(self, name: str, container: ContainerRegistrarProtocol) -> None:
        self._role = f"workflow {name!r}"
        self._container = container

    def entry(
        self, func: Callable[..., Any], /, *, given: Sequence[str] = ()
    ) -> Callable[..., Any]:
        self._container.check_entry(func, given=given, role=self._role)
        return func


async def made(item: Any, services: MakingServices) -> Workflow:
    """A named workflow with what an application has; raises what is wrong with it."""
    facts = _facts(item)
    source: Any = item
    if inspect.isfunction(item) and facts:
        if _makes(item):
            source = await services.call(item)
        else:
            steps = [FunctionStep(item.__name__, item)]
            source = Pipeline(facts["name"], steps, version=facts["version"])
    if isinstance(source, WorkflowBuilder):
        source = source.build(container=services)
    names: list[str]
    if isinstance(source, Pipeline):
        kind, names, version = "pipeline", list(source.execution_order), source.version
    elif isinstance(source, WorkflowEngine):
        kind, names, version = "graph", list(source.nodes), source.version
    elif inspect.isclass(source) and issubclass(source, AbstractSaga):
        saga = cast("type[AbstractSaga[Any]]", cast("Any", source))
        source = saga
        kind, names, version = "saga", _saga_steps(saga), saga.VERSION
    else:
        raise _not_a_workflow(item, source)
    on = facts.get("on")
    name = _name(item, source, facts)
    definition = WorkflowDefinition(
        name=name,
        steps=names,
        version=version,
        kind=kind,
        description=facts.get("description", ""),
        on=None if on is None else on.__name__,
        timeout=facts.get("timeout"),
        retries=facts.get("retries", 0),
    )
    return Workflow(definition=definition, runnable=source, on=on)


def _name(item: Any, source: Any, facts: Mapping[str, Any]) -> str:
    """Runs are kept under the name of what runs, so a mark cannot give it another one."""
    own: str | None = None if isinstance(source, type) else source.name
    said: str = facts.get("name") or own or item.__name__
    if own is None or said == own:
        return said
    if said == item.__name__:  # the mark gave no name
        return own
    raise GraphValidationError(
        "invalid workflow definition:",
        problems=[
            GraphProblem(
                f"@workflow({said!r}) makes a workflow called {own!r}", "give both the same name"
            )
        ],
    )


def _in_module(item: Any) -> Iterator[Any]:
    if not isinstance(item, ModuleType):
        yield item
        return
    modules = [item]
    if hasattr(item, "__path__"):
        inside = pkgutil.walk_packages(item.__path__, f"{item.__name__}.")
        modules += [import_module(each.name) for each in inside]
    for module in modules:
        for value in list(vars(module).values()):
            if isinstance(value, Pipeline | WorkflowEngine | WorkflowBuilder) or _is_marked(value):
                yield value


def _is_marked(value: Any) -> bool:
    # In its own __dict__: a subclass of a marked saga is not marked by that.
    return "__workflow__" in getattr(value, "__dict__", {})


def _facts(item: Any) -> Mapping[str, Any]:
    if not _is_marked(item):
        return {}
    return {
        "name": item.__workflow_name__,
        "timeout": item.__workflow_timeout__,
        "retries": item.__workflow_retries__,
        "on": item.__workflow_on__,
        "version": item.__workflow_version__,
        "description": inspect.cleandoc(item.__doc__ or "").partition("\n")[0],
    }


def _makes(function: Any) -> bool:
    """Whether a function says that it returns a workflow."""
    try:
        returned = get_type_hints(function).get("return")
    except NameError:  # an annotation that only type checkers can follow
        returned = None
    return isinstance(returned, type) and issubclass(
        returned, Pipeline | WorkflowEngine | WorkflowBuilder
    )


def _saga_steps(saga: type[Any]) -> list[str]:
    """The steps that are methods, in order; those a saga adds by itself are known when it runs."""
    seen: dict[str, None] = {}
    for cls in reversed(saga.__mro__):
        seen.update(dict.fromkeys(vars(cls)))
    methods: list[Any] = [getattr(saga, attribute, None) for attribute in seen]
    return [step.__saga_step_name__ for step in methods if hasattr(step, "__saga_step_name__")]


def _not_a_workflow(item: Any, source: Any) -> GraphValidationError:
    what = getattr(item, "__name__", None) or repr(item)
    made_of = "" if source is item else f" made {type(source).__name__}, which"
    return GraphValidationError(
        "invalid workflow definition:",
        problems=[
            GraphProblem(
                f"{what}{made_of} is no workflow",
                "name a Pipeline, a WorkflowEngine, a function or saga with @workflow, or a module",
            )
        ],
    )
