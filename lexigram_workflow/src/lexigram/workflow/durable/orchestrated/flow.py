"""The interface of pipelines and graphs that run as claims, and the stored form of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, Protocol, cast

from attrs import field, frozen
from attrs.validators import min_len, optional

from lexigram.contracts.workflow.limits import check_retries, check_seconds, check_timeout
from lexigram.serialization import SerializationError
from lexigram.workflow.durable.errors import OrchestrationFailedError, PlanInvalidError
from lexigram.workflow.durable.plan import ORCHESTRATED, RunPlan, StepPlan, validate_with
from lexigram.workflow.runs import _codec as codec

# The last step of every plan: gathers what is left, and has the result.
END = "(end)"

TURN = f"{ORCHESTRATED}turn"
NODE = f"{ORCHESTRATED}node"
SAGA = f"{ORCHESTRATED}saga"
ALARM = f"{ORCHESTRATED}alarm"


@frozen(kw_only=True)
class StepTerms:
    """How a node or step is claimed and tried; see ``StepPlan``."""

    # attempts in all: 1 is no second try
    retries: int = field(default=1, validator=validate_with(check_retries))
    # seconds before the second attempt; doubles up to five minutes
    backoff: float = field(default=0.0, validator=validate_with(check_seconds))
    # seconds an attempt may take; None is the limit of the graph or step itself
    timeout: float | None = field(default=None, validator=optional(validate_with(check_timeout)))
    # the pool that takes it; None is "graph", "pipeline" or "saga"
    pool: str | None = field(default=None, validator=optional(min_len(1)))
    # nodes and steps with the same key never run at the same time, in any process
    resource_key: str | None = None

    def step(self, name: str, handler: str, kind: str, params: Mapping[str, Any]) -> StepPlan:
        """A step of a plan with these terms."""
        return StepPlan(
            name=name,
            step_type=kind,
            handler=handler,
            retries=self.retries,
            backoff=self.backoff,
            pool=self.pool,
            resource_key=self.resource_key,
            params=params,
        )


@frozen(kw_only=True)
class Piece:
    """Something to run once: a visit of a node, a step of a pipeline."""

    # finds it again in the stored run
    key: int | str
    name: str


class Walk(Protocol):
    """One run in memory, at the place where it was stored."""

    def ready(self) -> Sequence[Piece]:
        """What may run now, side by side; nothing: the run is over."""
        ...

    def begin(self, pieces: Sequence[Piece]) -> None:
        """They are about to run; raises when they must not, as in a loop without end."""
        ...

    async def run(self, piece: Piece) -> dict[str, Any]:
        """What it changes. Raises what failed, with its name, and HumanInputRequiredError."""
        ...

    def take(self, done: Sequence[tuple[Piece, dict[str, Any]]]) -> None:
        """Take over what pieces that ran side by side changed, in this order."""
        ...

    def answer(
        self, piece: Piece, response: Any, remember: Mapping[str, Any], *, timed_out: bool
    ) -> None:
        """Let the piece that asked find the answer when it is run again."""
        ...

    def document(self) -> dict[str, Any]:
        """State and position."""
        ...


class Flow(Protocol):
    """A registered pipeline or graph."""

    kind: ClassVar[str]
    name: str
    version: int
    shape: str
    # older versions whose runs go on with this one
    accepts: frozenset[int]

    def plan(self) -> RunPlan:
        """The plan of a run."""
        ...

    def start(self, given: Any) -> dict[str, Any]:
        """The document of a run that begins."""
        ...

    def at(self, document: Mapping[str, Any], run_id: str) -> Walk:
        """The run at its place."""
        ...

    def is_apart(self, piece: Piece) -> bool:
        """Whether it must be a run of its own, also where nothing runs beside it."""
        ...

    def terms(self, name: str) -> StepTerms:
        """Of a node or step."""
        ...

    def check(self, name: str, response: Any, remember: Mapping[str, Any]) -> None:
        """Raise what is wrong with an answer, before it is stored."""
        ...


def facts_of(kind: str, name: str, version: int, shape: str) -> Mapping[str, Any]:
    """The parameters by which the steps of a plan name their pipeline, graph or saga."""
    return {"orchestration": name, "kind": kind, "version": version, "shape": shape}


def facts_of_input(given: Any) -> Mapping[str, Any]:
    """The first facts of a run: a mapping as it is, anything else as its "input"."""
    if isinstance(given, Mapping):
        return cast("Mapping[str, Any]", given)
    return {} if given is None else {"input": given}


def check_terms(name: str, steps: Mapping[str, StepTerms], known: Iterable[str]) -> None:
    """Refuse terms for nodes or steps that are not there."""
    names = list(known)
    for unknown in set(steps) - set(names):
        near = get_close_matches(unknown, names, n=1)
        raise PlanInvalidError(
            f"{name!r} has no node or step {unknown!r}",
            details={"name": name, "unknown": unknown},
            hint=f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}",
        )


def write(document: Mapping[str, Any], place: str) -> str:
    """A document as text; OrchestrationFailedError names what cannot be stored."""
    try:
        return codec.encode(dict(document)).decode()
    except SerializationError as error:
        raise OrchestrationFailedError(
            f"{place}: what it returned cannot be kept: {error.message}",
            details={"place": place, **error.details},
            hint="register the class with lexigram.serialization.register, or keep plain data",
        ) from error


def read(text: str) -> dict[str, Any]:
    """The document that was written."""
    return codec.decode(text.encode())
