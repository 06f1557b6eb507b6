"""Where a run is: what waits to run, what waits for a person, and how it is written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import define, field, frozen

from lexigram.contracts.workflow.checkpoints import GraphRun, StoredRun
from lexigram.workflow.errors import WorkflowStateError
from lexigram.workflow.graph._plan import Plan
from lexigram.workflow.runs import _codec as codec


@define(eq=False)
class Token:
    """A node that is to run once."""

    at: int
    # different for every token of a run, also after a crash
    visit: int
    # only edges that close a loop led here
    back: bool = False
    # a piece of a fan-out: laid over the state for this one run of the node
    overlay: dict[str, Any] | None = None
    branch: int | None = None


@define(eq=False)
class Pause:
    """A token whose node waits for an answer."""

    token: Token
    prompt: str
    remember: dict[str, Any] = field(factory=dict[str, Any])
    # seconds since 1970; None waits for ever
    due_at: float | None = None


@define
class Answer:
    """The answer for a node that waited, when it is tried again."""

    response: Any
    remember: dict[str, Any] = field(factory=dict[str, Any])
    # nobody answered in time; there is no response
    timed_out: bool = False


@define
class Position:
    """All that a run is besides its state."""

    waiting: list[Token] = field(factory=list[Token])
    paused: list[Pause] = field(factory=list[Pause])
    # answers that are stored, by visit, until the node that asked has finished
    answers: dict[int, Answer] = field(factory=dict[int, Answer])
    # stored results of nodes in a step that is not over, by visit
    parts: dict[int, dict[str, Any]] = field(factory=dict[int, dict[str, Any]])
    visits: int = 0
    iterations: int = 0
    loop_runs: int = 0
    terminated_at: str | None = None

    def new_visit(self) -> int:
        """A number for a new token."""
        self.visits += 1
        return self.visits

    def answered(self, visit: int, response: Any, *, timed_out: bool = False) -> None:
        """Let the node that paused at this visit run again."""
        pause = next(pause for pause in self.paused if pause.token.visit == visit)
        self.paused.remove(pause)
        self.waiting.insert(0, pause.token)
        self.answers[visit] = Answer(response, pause.remember, timed_out)

    def as_document(self, plan: Plan) -> dict[str, Any]:
        """For a checkpoint: nodes by name, so that new nodes do not move old ones."""
        document: dict[str, Any] = {
            "t": [_token_out(token, plan) for token in self.waiting],
            "c": [self.visits, self.iterations, self.loop_runs],
        }
        if self.paused:
            document["h"] = [
                [_token_out(pause.token, plan), pause.prompt, pause.remember, pause.due_at]
                for pause in self.paused
            ]
        if self.answers:
            document["a"] = [
                [visit, answer.response, answer.remember, answer.timed_out]
                for visit, answer in self.answers.items()
            ]
        if self.terminated_at is not None:
            document["e"] = self.terminated_at
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any], plan: Plan) -> Position:
        """The position a checkpoint holds; WorkflowStateError when a node is gone."""
        visits, iterations, loop_runs = document["c"]
        return cls(
            waiting=[_token_in(item, plan) for item in document["t"]],
            paused=[
                Pause(_token_in(token, plan), prompt, remember, due_at)
                for token, prompt, remember, due_at in document.get("h", ())
            ],
            answers={visit: Answer(*answer) for visit, *answer in document.get("a", ())},
            visits=visits,
            iterations=iterations,
            loop_runs=loop_runs,
            terminated_at=document.get("e"),
        )


# What a node changed, as (name, visit, update).
Change: TypeAlias = tuple[str, int, dict[str, Any]]


@define(eq=False)
class Contents:
    """What there is to record of a run. Apart from the run, which has the recorder: a circle would
    wait for the garbage collector.
    """

    plan: Plan
    state: Mapping[str, Any]
    position: Position
    # by the nodes of the last step; stored with it, or with the pause or the end
    changes: list[Change] = field(factory=list[Change])

    @property
    def nodes(self) -> list[str]:
        """The nodes of the last step."""
        return [name for name, _, _ in self.changes]

    def document(self, changed_by: Sequence[str] | None = None) -> dict[str, Any]:
        """The position, and the state; or instead of it what the nodes of the last step changed."""
        document, stored = self.position.as_document(self.plan), self.position.parts
        if changed_by is None:
            document["w"] = {key: item for key, item in self.state.items() if key[:1] != "_"}
        else:
            # A part that is stored is not written again: None stands for it.
            document["s"] = [
                [name, visit, None if visit in stored else update]
                for name, visit, update in self.changes
            ]
        return document


@frozen
class Loaded:
    """A stored run, ready to be resumed."""

    stored: StoredRun
    state: dict[str, Any]
    position: Position

    @property
    def run(self) -> GraphRun:
        """How it stands."""
        return self.stored.run

    @property
    def seq(self) -> int:
        """The number of its last checkpoint."""
        return self.stored.checkpoints[-1].seq


def load(
    stored: StoredRun, plan: Plan, apply: Callable[[dict[str, Any], dict[str, Any]], None]
) -> Loaded:
    """Build state and position from the checkpoints; ``apply(state, update)`` reduces."""
    state: dict[str, Any] = {}
    position = Position()
    for checkpoint in stored.checkpoints:
        document = codec.decode(checkpoint.data)
        if "w" in document:
            state = dict(document["w"])
        if "q" in document:
            position.parts.update(document["q"])
        elif "r" in document:
            visit, response, timed_out = document["r"]
            position.answered(visit, response, timed_out=timed_out)
        else:
            parts = position.parts
            for _, visit, update in document.get("s", ()):
                apply(state, parts[visit] if update is None else update)
            position = Position.from_document(document, plan)
            waiting = {token.visit for token in position.waiting}
            position.parts = {visit: part for visit, part in parts.items() if visit in waiting}
    return Loaded(stored, state, position)


def _token_out(token: Token, plan: Plan) -> list[Any]:
    short = [plan.names[token.at], token.visit]
    if token.back or token.overlay is not None:
        return [*short, token.back, token.overlay, token.branch]
    return short


def _token_in(item: list[Any], plan: Plan) -> Token:
    name, visit, *more = item
    number = plan.numbers.get(name)
    if number is None:
        raise WorkflowStateError(
            f"the stored run goes on at node {name!r}, which the definition does not have",
            hint="bring the node back, or raise the version when you change a definition",
        )
    back, overlay, branch = more or (False, None, None)
    return Token(number, visit, back, overlay, branch)
