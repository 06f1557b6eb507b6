"""A pipeline as claims: a claim for each step, and a run for each of those side by side."""

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
    write,
)
from lexigram.workflow.durable.plan import RunPlan
from lexigram.workflow.errors import HumanInputRequiredError, PipelineExecutionError
from lexigram.workflow.pipeline._plan import every
from lexigram.workflow.pipeline._position import facts_of as _facts
from lexigram.workflow.pipeline.base import PipelineStep, attempt
from lexigram.workflow.pipeline.context import PipelineContext, StepStatus
from lexigram.workflow.pipeline.pipeline import Pipeline
from lexigram.workflow.pipeline.steps import ParallelStep

# Under this name a pause remembers which step asked.
_ASKED = "_asked"


class PipelineFlow:
    """A pipeline and its terms. The steps of a plan have the names of the pipeline's steps."""

    kind: ClassVar[str] = "pipeline"

    def __init__(
        self,
        name: str,
        pipeline: Pipeline,
        terms: StepTerms,
        steps: Mapping[str, StepTerms],
        accepts: Iterable[int],
    ) -> None:
        pipeline.validate()
        check_terms(name, steps, (step.name for step in every(pipeline.steps)))
        self.name = name
        self.version = pipeline.version
        self.shape = pipeline.shape
        self.accepts = frozenset(accepts)
        self._pipeline = pipeline
        self._terms = terms
        self._steps = dict(steps)

    def plan(self) -> RunPlan:
        """One after the other: a step for each. Side by side: as many turns as there are steps."""
        facts = facts_of(self.kind, self.name, self.version, self.shape)
        names = self._pipeline.execution_order
        if self._pipeline.is_concurrent:
            turns = [
                self._terms.step(f"turn {number}", TURN, self.kind, facts)
                for number in range(1, len(names) + 1)
            ]
        else:
            turns = [self.terms(name).step(name, TURN, self.kind, facts) for name in names]
        end = self._terms.step(END, TURN, self.kind, facts)
        return RunPlan(workflow_id=self.name, steps=[*turns, end])

    def start(self, given: Any) -> dict[str, Any]:
        """A mapping is the facts of the run, anything else its "input"."""
        if isinstance(given, PipelineContext):
            return {"results": dict(given.step_results), "facts": _facts(given)}
        return {"results": {}, "facts": dict(facts_of_input(given))}

    def at(self, document: Mapping[str, Any], run_id: str) -> PipelineWalk:
        """The run at its place."""
        return PipelineWalk(self._pipeline, document, run_id)

    def is_apart(self, piece: Piece) -> bool:
        """A step with terms of its own, where the plan does not have them."""
        return self._pipeline.is_concurrent and piece.name in self._steps

    def terms(self, name: str) -> StepTerms:
        """Of a step; its own ``timeout`` and ``resilience`` count too."""
        return self._steps.get(name, self._terms)

    def check(self, name: str, response: Any, remember: Mapping[str, Any]) -> None:
        """Steps take any answer."""

    @staticmethod
    def show(document: Mapping[str, Any]) -> Mapping[str, Any]:
        """What steps returned, and the facts."""
        return {"results": document["results"], "metadata": document["facts"]}


class PipelineWalk:
    """A run of a pipeline, moved step by step."""

    def __init__(self, pipeline: Pipeline, document: Mapping[str, Any], run_id: str) -> None:
        self._pipeline = pipeline
        self._context = PipelineContext(
            pipeline.name, dict(document["results"]), dict(document["facts"]), run_id=run_id
        )
        self._context.progress.finished = dict(document.get("finished", {}))
        self._context.progress.ways = dict(document.get("ways", {}))
        self._settle()

    def ready(self) -> Sequence[Piece]:
        """The next step, or all whose dependencies are over; for a ParallelStep, those inside."""
        return [Piece(key=step.name, name=step.name) for step in self._ready()]

    def begin(self, pieces: Sequence[Piece]) -> None:
        """Nothing keeps a step from running."""

    async def run(self, piece: Piece) -> dict[str, Any]:
        """With everything around it: skipping, resilience, recovery, cleaning up."""
        context, progress = self._context, self._context.progress
        before = set(progress.finished)
        facts = {key: _text(piece, value) for key, value in _facts(context).items()}
        progress.waiting.clear()
        try:
            done = await attempt(self._step(piece), context)
        except HumanInputRequiredError as pause:
            # The one that asked may be inside this one.
            asked = next(iter(progress.waiting), piece.name)
            pause.remember = {**pause.remember, _ASKED: asked}
            raise
        if done.status is StepStatus.FAILED:
            assert done.error is not None
            about = {"pipeline": self._pipeline.name, "run_id": context.run_id}
            raise PipelineExecutionError(
                piece.name, done.error, about, hint=getattr(done.error, "hint", None)
            ) from done.error
        finished = {name: how for name, how in progress.finished.items() if name not in before}
        results = context.step_results
        return {
            "results": {name: results[name] for name, how in finished.items() if how == "c"},
            "finished": finished,
            "ways": progress.ways,
            # Compared as bytes, because a fact may have been changed in place.
            "facts": {
                key: value
                for key, value in _facts(context).items()
                if facts.get(key) != _text(piece, value)
            },
        }

    def take(self, done: Sequence[tuple[Piece, dict[str, Any]]]) -> None:
        """The later of two that changed one fact wins."""
        context = self._context
        for _, update in done:
            context.step_results.update(update["results"])
            context.progress.finished.update(update["finished"])
            context.progress.ways.update(update["ways"])
            context.metadata.update(update["facts"])
        self._settle()

    def answer(
        self, piece: Piece, response: Any, remember: Mapping[str, Any], *, timed_out: bool
    ) -> None:
        """For the step that asked, which may be inside this one."""
        name = str(remember.get(_ASKED, piece.name))
        if timed_out:
            self._context.timed_out.add(name)
        else:
            self._context.answers[name] = response

    def document(self) -> dict[str, Any]:
        """What steps returned, which are over, which way choices went, and the facts."""
        progress = self._context.progress
        return {
            "results": self._context.step_results,
            "finished": progress.finished,
            "ways": progress.ways,
            "facts": _facts(self._context),
        }

    def _ready(self) -> list[PipelineStep]:
        finished = self._context.progress.finished
        found: list[PipelineStep] = []
        for step in self._pipeline.ready_steps():
            if step.name in finished:
                continue
            if self._pipeline.is_concurrent and not finished.keys() >= set(step.dependencies):
                continue
            inside = step.inner_steps if _is_open(step) else [step]
            found += [inner for inner in inside if inner.name not in finished]
            if not self._pipeline.is_concurrent:
                break
        return found

    def _step(self, piece: Piece) -> PipelineStep:
        return next(s for s in every(self._pipeline.ready_steps()) if s.name == piece.key)

    def _settle(self) -> None:
        """A ParallelStep is over when those inside are; its result is the list of theirs."""
        finished, results = self._context.progress.finished, self._context.step_results
        for step in self._pipeline.ready_steps():
            if not _is_open(step) or step.name in finished:
                continue
            names = [inner.name for inner in step.inner_steps]
            if finished.keys() >= set(names):
                results[step.name] = [results.get(name) for name in names]
                finished[step.name] = "c"


def _is_open(step: PipelineStep) -> bool:
    """Whether those inside are claims of their own: nothing is said about them together."""
    return type(step) is ParallelStep and step.is_plain


def _text(piece: Piece, value: Any) -> str:
    return write({"v": value}, f"step {piece.name!r}")
