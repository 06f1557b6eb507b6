"""A graph as claims: one node at a time in the run itself, several as runs of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from lexigram.workflow.durable.orchestrated.flow import (
    END,
    TURN,
    Piece,
    StepTerms,
    check_terms,
    facts_of,
    facts_of_input,
)
from lexigram.workflow.durable.plan import RunPlan
from lexigram.workflow.graph._position import Answer, Token
from lexigram.workflow.graph._run import Run
from lexigram.workflow.graph.engine import WorkflowEngine
from lexigram.workflow.graph.state import WorkflowState

# Turns for the pieces of fan-outs in graphs that run one node at a time.
_ONE_BY_ONE = 1_000
_SPARE = 3  # turns for nodes that a later version adds, which accepts the runs of this one
_MOST = 9_990  # steps of a plan, its end not counted


class GraphFlow:
    """A graph and its terms. Its rules are those of ``WorkflowEngine``: the same step by step."""

    kind: ClassVar[str] = "graph"

    def __init__(
        self,
        name: str,
        engine: WorkflowEngine,
        terms: StepTerms,
        steps: Mapping[str, StepTerms],
        accepts: Iterable[int],
    ) -> None:
        engine.validate()
        check_terms(name, steps, engine.nodes)
        self.name = name
        self.version = engine.version
        self.shape = engine.shape
        self.accepts = frozenset(accepts)
        self._engine = engine
        self._terms = terms
        self._steps = dict(steps)

    def plan(self) -> RunPlan:
        """As many turns as the graph can take, and an end; a run goes there when it is over."""
        facts = facts_of(self.kind, self.name, self.version, self.shape)
        names = [f"turn {number}" for number in range(1, self._turns() + 1)]
        steps = [self._terms.step(name, TURN, self.kind, facts) for name in (*names, END)]
        return RunPlan(workflow_id=self.name, steps=steps)

    def start(self, given: Any) -> dict[str, Any]:
        """At the entry; a mapping is the state, anything else its "input"."""
        if isinstance(given, WorkflowState):
            given = given.as_dict()
        return GraphWalk(self._engine.placed(facts_of_input(given))).document()

    def at(self, document: Mapping[str, Any], run_id: str) -> GraphWalk:
        """WorkflowStateError when it stands at a node that is gone."""
        return GraphWalk(self._engine.placed(document["state"], document, run_id=run_id))

    def is_apart(self, piece: Piece) -> bool:
        """A node with terms of its own."""
        return piece.name in self._steps

    def terms(self, name: str) -> StepTerms:
        """With the limit of the graph where they have none."""
        terms = self._steps.get(name, self._terms)
        if terms.timeout is None and self._engine.config.node_timeout:
            return StepTerms(
                retries=terms.retries,
                backoff=terms.backoff,
                timeout=self._engine.config.node_timeout,
                pool=terms.pool,
                resource_key=terms.resource_key,
            )
        return terms

    def check(self, name: str, response: Any, remember: Mapping[str, Any]) -> None:
        """By the node that asked, if it has a check."""
        plan = self._engine.placed({}).plan
        if name not in plan.numbers:
            return  # the worker refuses the run with the reason
        check = getattr(plan.nodes[plan.numbers[name]], "check_answer", None)
        if check is not None:
            check(response, remember)

    @staticmethod
    def show(document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The state."""
        state: Mapping[str, Any] = document["state"]
        return state

    def _turns(self) -> int:
        """A node outside of loops has one turn; in loops, all together what the graph allows."""
        config, plan = self._engine.config, self._engine.placed({}).plan
        looping = sum(plan.in_cycle)
        turns = len(plan.names) - looping + (config.max_iterations if looping else 0)
        spreads = any(way.each is not None for ways in plan.ways for way in ways)
        if spreads and not config.parallel_branches:
            turns += _ONE_BY_ONE
        return min(turns + _SPARE, _MOST)


class GraphWalk:
    """A run of a graph, moved node by node."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def ready(self) -> Sequence[Piece]:
        """The tokens that nothing else can still lead to."""
        return [self._piece(token) for token in self._run.ready()]

    def begin(self, pieces: Sequence[Piece]) -> None:
        """Count turns of loops."""
        self._run.count([self._token(piece) for piece in pieces])

    async def run(self, piece: Piece) -> dict[str, Any]:
        """Run the node on the state as this visit sees it."""
        return await self._run.run_one(self._token(piece))

    def take(self, done: Sequence[tuple[Piece, dict[str, Any]]]) -> None:
        """By the reducers; then the edges are followed."""
        self._run.take([(self._token(piece), update) for piece, update in done])

    def answer(
        self, piece: Piece, response: Any, remember: Mapping[str, Any], *, timed_out: bool
    ) -> None:
        """For this visit."""
        answer = Answer(response, dict(remember), timed_out)
        self._run.position.answers[self._token(piece).visit] = answer

    def document(self) -> dict[str, Any]:
        """Nodes by name, so that new nodes do not move old ones."""
        document = self._run.contents.document()
        return {"state": document.pop("w"), **document}

    def _piece(self, token: Token) -> Piece:
        return Piece(key=token.visit, name=self._run.plan.names[token.at])

    def _token(self, piece: Piece) -> Token:
        return next(token for token in self._run.position.waiting if token.visit == piece.key)
