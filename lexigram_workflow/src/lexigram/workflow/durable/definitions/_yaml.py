"""Read workflow definitions and parameter sets from YAML, with every problem and its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Literal, TypeVar, cast

from attrs import Attribute, evolve, field, frozen
from attrs.validators import and_, ge, gt, le, matches_re, max_len, min_len, optional

from lexigram.config import ConfigProblem
from lexigram.config.faults import UNKNOWN_KEY, nearest
from lexigram.config.sources import read_yaml_document
from lexigram.config.structure import structure
from lexigram.config.tree import DEFAULT_SOURCE, Broken, ConfigTree, Text, key_text
from lexigram.contracts.workflow.limits import (
    MAX_DEFINITION_LENGTH,
    MAX_NAME_LENGTH,
    MAX_RETRIES,
    MAX_SECONDS,
    MAX_TEXT_LENGTH,
    find_unstorable,
)
from lexigram.sql.text import is_storable
from lexigram.workflow.durable.definitions._params import check_params
from lexigram.workflow.durable.definitions.catalog import HandlerCatalog, HandlerFault
from lexigram.workflow.durable.definitions.model import (
    STEP_TYPES,
    LifecycleDefinition,
    ParameterSet,
    Source,
    StepDefinition,
    WorkflowDefinition,
    names_in,
)
from lexigram.workflow.durable.plan import Condition, LifeCycleEvent

T = TypeVar("T")

_ID = matches_re(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")  # becomes the name of a file


def _is_text(_: object, __: Attribute[Any], text: str) -> None:
    if not is_storable(text):
        raise ValueError("contains a NUL character or a lone surrogate: remove it")


_NAME: Callable[[Any, Attribute[Any], str], Any] = and_(
    min_len(1), max_len(MAX_NAME_LENGTH), _is_text
)
_METHOD: Callable[[Any, Attribute[Any], str], Any] = and_(
    min_len(1), max_len(MAX_TEXT_LENGTH), _is_text
)
_ATTEMPTS: Callable[[Any, Attribute[Any], int], Any] = and_(ge(1), le(MAX_RETRIES))
_TIMEOUT: Callable[[Any, Attribute[Any], float], Any] = and_(gt(0), le(MAX_SECONDS))
_WAIT: Callable[[Any, Attribute[Any], float], Any] = and_(ge(0), le(MAX_SECONDS))


def _are_steps(_: object, __: Attribute[Any], steps: Mapping[str, Any]) -> None:
    if not steps:
        raise ValueError("has no steps: write at least one")
    if "" in steps:
        raise ValueError("a step needs a name")
    for key in steps:
        if len(key) > MAX_NAME_LENGTH or not is_storable(key):
            raise ValueError(
                f"the name {key[:80]!a} of a step has more than {MAX_NAME_LENGTH} characters,"
                " NUL or a lone surrogate"
            )


def _is_condition(_: object, __: Attribute[Any], text: str) -> None:
    if Condition.parse(text) is None:
        raise ValueError("expected `name` or `not name` of a parameter or an earlier result")


@frozen(kw_only=True)
class _Handler:
    """An entry of ``lifecycle_events``."""

    name: str = field(validator=_NAME)
    method: str = field(validator=_METHOD)
    retries: int = field(default=1, validator=_ATTEMPTS)
    timeout: float | None = field(default=None, validator=optional(_TIMEOUT))
    parameters: Mapping[str, Any] = field(factory=dict[str, Any])


@frozen(kw_only=True)
class _Step:
    """An entry of ``item_steps``."""

    method: str = field(validator=_METHOD)
    name: str | None = field(default=None, validator=optional(_NAME))
    type: str | None = field(default=None, validator=optional(_NAME))
    retries: int = field(default=1, validator=_ATTEMPTS)
    timeout: float | None = field(default=None, validator=optional(_TIMEOUT))
    backoff: float = field(default=0.0, validator=_WAIT)
    backoff_cap: float = field(default=300.0, validator=_WAIT)
    resource_key: str | None = field(default=None, validator=optional(_NAME))
    resource_shared: bool | None = None
    pool: str | None = field(default=None, validator=optional(_NAME))
    when: str | None = field(default=None, validator=optional(_is_condition))
    parameters: Mapping[str, Any] = field(factory=dict[str, Any])


@frozen(kw_only=True)
class _Workflow:
    """The file of a workflow."""

    id: str = field(validator=_ID)
    name: str = field(validator=_NAME)
    item_steps: Mapping[str, _Step] = field(validator=_are_steps)
    meta: Mapping[str, Any] = field(factory=dict[str, Any])
    lifecycle_events: Mapping[LifeCycleEvent, list[_Handler]] | None = None
    source: Literal["app", "user"] = "app"


@frozen(kw_only=True)
class _Params:
    """The file of a parameter set."""

    id: str = field(validator=_ID)
    config: Mapping[str, Mapping[str, Any]]
    name: str | None = field(default=None, validator=optional(_NAME))
    meta: Mapping[str, Any] = field(factory=dict[str, Any])
    source: Literal["app", "user"] = "app"


@frozen(kw_only=True)
class AbsentHandler(ConfigProblem):
    """A handler that this process does not have; another worker may."""


@frozen(kw_only=True)
class Document:
    """One YAML file as text: from a folder, a package or an upload."""

    text: str
    # its path, or the name that places show instead
    name: str
    source: Source


def read_workflow(
    document: Document, handlers: HandlerCatalog, absent: list[ConfigProblem] | None = None
) -> tuple[WorkflowDefinition | None, list[ConfigProblem]]:
    """The workflow, or None and the problems.

    Handlers that are not in this process are a problem; with ``absent`` they are added there
    instead, and the workflow is valid.
    """
    tree = _tree(document)
    if not tree.data:
        return None, tree.problems
    found, problems = _read_model(_Workflow, tree, document.name)
    # also after other problems: one pass reports everything
    problems += _unfit(tree.data.get("meta"), ("meta",), tree)
    is_limited = _is_limited(document.source, handlers)
    faults = list(_faulty_steps(tree, handlers, is_limited=is_limited))
    if found is None or problems or absent is None or not all(map(_is_absent, faults)):
        problems += faults
    else:
        absent += faults
    if found is None or problems:
        return None, problems
    problems += _same_names(found, tree)
    definition = WorkflowDefinition(
        id=found.id,
        name=found.name,
        meta=_plain(found.meta),
        steps=[_step(key, step, tree) for key, step in found.item_steps.items()],
        lifecycle={
            event: [_lifecycle(item, tree, event, n) for n, item in enumerate(items)]
            for event, items in (found.lifecycle_events or {}).items()
        },
        source=document.source,
        origin=document.name,
    )
    return (None if problems else definition), problems


def read_params(document: Document) -> tuple[ParameterSet | None, list[ConfigProblem]]:
    """The parameter set, or None and the problems."""
    tree = _tree(document)
    if not tree.data:
        return None, tree.problems
    found, problems = _read_model(_Params, tree, document.name)
    for step, values in _section(tree.data, "config").items():
        problems += _unfit(values, ("config", step), tree)
    problems += _unfit(tree.data.get("meta"), ("meta",), tree)
    if found is None or problems:
        return None, problems
    places = {
        (step, name): tree.trace.place_of(("config", step, name))[0]
        for step, values in found.config.items()
        for name in values
    }
    return ParameterSet(
        id=found.id,
        name=found.name,
        meta=_plain(found.meta),
        config={step: _plain(values) for step, values in found.config.items()},
        source=document.source,
        origin=document.name,
        places=places,
    ), []


def check_set(
    params: ParameterSet, workflows: Sequence[WorkflowDefinition], handlers: HandlerCatalog
) -> Iterator[ConfigProblem]:
    """Problems of a set in every workflow: unknown steps, values that no handler accepts."""
    known = frozenset(name for workflow in workflows for name in workflow.names)
    tree = ConfigTree()
    for (step, name), place in params.places.items():
        tree.trace.record(("config", step, name), place)
    for key, values in params.config.items():
        steps = [s for w in workflows for s in w.steps if key in (s.key, s.step_type)]
        if not steps and key not in STEP_TYPES:
            yield ConfigProblem(
                source=tree.trace.place_of(("config", key))[0] if values else params.origin,
                key=f"config.{key}",
                message="no workflow has a step with this key or type",
                suggestion=nearest(key, known | set(STEP_TYPES)),
            )
            continue
        checked = [_check_step(step, values, ("config", key), tree, handlers) for step in steps]
        # Workflows accept different parameters: a set that one of them accepts is valid.
        if checked and all(checked):
            # Report the problems of the step that has most of the names.
            yield from min(checked, key=lambda problems: (_unknown(problems), len(problems)))


def _check_step(
    step: StepDefinition,
    values: Mapping[str, Any],
    path: tuple[str, ...],
    tree: ConfigTree,
    handlers: HandlerCatalog,
) -> list[ConfigProblem]:
    function = handlers.get(step.method)
    if function is None:
        return []
    try:
        besides = names_in(step.resource_key or "")
    except ValueError:
        return []  # of a definition made in code: the problem is reported with its plan
    return check_params(function, values, path, tree.trace, is_partial=True, besides=besides)


def _unknown(problems: Sequence[ConfigProblem]) -> int:
    return sum(problem.message.startswith(UNKNOWN_KEY) for problem in problems)


def _is_limited(source: Source, handlers: HandlerCatalog) -> bool:
    """Whether handlers must match the prefixes: uploads always, folders if prefixes are set.

    An installed package can run anything anyway.
    """
    return source == "user" or (source == "app" and bool(handlers.prefixes))


# --- one file -----------------------------------------------------------------------------------


def _tree(document: Document) -> ConfigTree:
    if len(document.text) > MAX_DEFINITION_LENGTH:
        tree = ConfigTree()
        text = f"has {len(document.text)} characters, at most {MAX_DEFINITION_LENGTH} are read"
        tree.problems.append(ConfigProblem(source=document.name, message=text))
        return tree
    tree = read_yaml_document(document.text, document.name)
    if not tree.data and not tree.problems:
        tree.problems.append(ConfigProblem(source=document.name, message="is empty"))
    return tree


def _read_model(
    model: type[T], tree: ConfigTree, name: str
) -> tuple[T | None, list[ConfigProblem]]:
    found, problems = structure(model, tree.data, (), tree.trace)
    # A key that is missing at the top level has its place at the start of the file.
    placed = [
        evolve(one, source=f"{name}:1:1") if one.source == DEFAULT_SOURCE else one
        for one in problems
    ]
    return found, [*tree.problems, *placed]


def _faulty_steps(
    tree: ConfigTree, handlers: HandlerCatalog, *, is_limited: bool
) -> Iterator[ConfigProblem]:
    for key, step in _section(tree.data, "item_steps").items():
        path = ("item_steps", key)
        function = yield from _function(step, path, tree, handlers, is_limited=is_limited)
        # Parameter sets may bring what is missing here.
        yield from _misfits(function, step, path, tree, is_partial=True)
    for event, items in _section(tree.data, "lifecycle_events", of=list).items():
        for n, item in enumerate(items):
            if isinstance(item, Mapping):
                entry, at = cast("Mapping[str, Any]", item), ("lifecycle_events", event, n)
                function = yield from _function(entry, at, tree, handlers, is_limited=is_limited)
                yield from _misfits(function, entry, at, tree, is_partial=False)


def _is_absent(problem: ConfigProblem) -> bool:
    return isinstance(problem, AbsentHandler)


def _misfits(
    function: Callable[..., Any] | None,
    item: Mapping[str, Any],
    path: tuple[str | int, ...],
    tree: ConfigTree,
    *,
    is_partial: bool,
) -> Iterator[ConfigProblem]:
    """Problems of the parameters of a step or an event's handler."""
    values = item.get("parameters") or dict[str, Any]()
    at = (*path, "parameters")
    yield from _unfit(values, at, tree)
    if function is not None and isinstance(values, Mapping):
        given = _readable(cast("Mapping[str, Any]", values))
        besides = frozenset[str]()
        try:
            besides = names_in(str(item.get("resource_key") or ""))
        except ValueError as error:
            yield _problem(tree, (*path, "resource_key"), str(error))
        yield from check_params(
            function, given, at, tree.trace, is_partial=is_partial, besides=besides
        )


def _function(
    item: Mapping[str, Any],
    path: tuple[str | int, ...],
    tree: ConfigTree,
    handlers: HandlerCatalog,
    *,
    is_limited: bool,
) -> Generator[ConfigProblem, None, Callable[..., Any] | None]:
    method = item.get("method")
    if not isinstance(method, str) or not method:
        return None  # reported by the check of its type
    try:
        return handlers.find(str(method), is_limited=is_limited)
    except HandlerFault as fault:
        kind = AbsentHandler if fault.is_absent else ConfigProblem
        yield _problem(tree, (*path, "method"), fault.message, fault.guess, kind)
        return None


def _unfit(values: Any, path: tuple[str | int, ...], tree: ConfigTree) -> Iterator[ConfigProblem]:
    """Parameters that are not JSON: infinity, numbers beyond 64 bits, lone surrogates."""
    for name, value in _items(values):
        if isinstance(value, float) and not isfinite(value):
            yield _problem(tree, (*path, name), "expected a finite number, not infinity or .nan")
        elif isinstance(value, Mapping | list):
            yield from _unfit(value, (*path, name), tree)
        elif not isinstance(value, Broken):
            for _, problem, _, _ in find_unstorable(value, ""):
                yield _problem(tree, (*path, name), problem)


def _same_names(found: _Workflow, tree: ConfigTree) -> Iterator[ConfigProblem]:
    """Routing and the tables identify steps by their names."""
    names = Counter(step.name or key for key, step in found.item_steps.items())
    for key, step in found.item_steps.items():
        name = step.name or key
        if names[name] > 1:
            text = f"{names[name]} steps are called {name!r}: give each a name of its own"
            yield _problem(tree, ("item_steps", key), text)


def _step(key: str, step: _Step, tree: ConfigTree) -> StepDefinition:
    path = ("item_steps", key)
    return StepDefinition(
        key=key,
        name=step.name or key,
        step_type=step.type or key,
        method=step.method,
        retries=step.retries,
        timeout=step.timeout,
        backoff=step.backoff,
        backoff_cap=step.backoff_cap,
        resource_key=step.resource_key,
        resource_shared=step.resource_shared,
        pool=step.pool,
        when=step.when,
        parameters=_plain(step.parameters),
        place=tree.trace.place_of(path)[0],
        places={
            name: tree.trace.place_of((*path, "parameters", name))[0] for name in step.parameters
        },
    )


def _lifecycle(
    item: _Handler, tree: ConfigTree, event: LifeCycleEvent, number: int
) -> LifecycleDefinition:
    return LifecycleDefinition(
        name=item.name,
        method=item.method,
        retries=item.retries,
        timeout=item.timeout,
        parameters=_plain(item.parameters),
        place=tree.trace.place_of(("lifecycle_events", event.value, number))[0],
    )


def _problem(
    tree: ConfigTree,
    path: tuple[str | int, ...],
    message: str,
    suggestion: str | None = None,
    kind: type[ConfigProblem] = ConfigProblem,
) -> ConfigProblem:
    place = tree.trace.place_of(path)[0]
    return kind(source=place, key=key_text(path), message=message, suggestion=suggestion)


def _section(data: Mapping[Any, Any], name: str, of: type = dict) -> dict[str, Any]:
    """The entries of a section that have the shape they should have."""
    section = data.get(name)
    if not isinstance(section, Mapping):
        return {}
    entries = cast("Mapping[object, Any]", section).items()
    return {str(key): value for key, value in entries if isinstance(value, of)}


def _items(values: Any) -> Iterator[tuple[str | int, Any]]:
    """The entries of a mapping or a list; anything else has none."""
    if isinstance(values, Mapping):
        yield from cast("Mapping[str, Any]", values).items()
    elif isinstance(values, list):
        yield from enumerate(cast("list[object]", values))


def _readable(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not isinstance(value, Broken)}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without the marks of the reader."""
    return {str(name): _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _plain(cast("Mapping[str, Any]", value))
    if isinstance(value, list):
        return [_plain_value(item) for item in cast("list[object]", value)]
    return str(value) if isinstance(value, Text) else value
