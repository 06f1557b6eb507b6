"""Where a run of a pipeline is, and how it is written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field

from lexigram.contracts.workflow.checkpoints import GraphRun, StoredRun
from lexigram.workflow.pipeline.context import STEP_RESULTS, TOTAL_DURATION, PipelineContext
from lexigram.workflow.runs import _codec as codec


@define
class Loaded:
    """A stored run, ready to be resumed."""

    stored: StoredRun
    results: dict[str, Any] = field(factory=dict[str, Any])
    finished: dict[str, str] = field(factory=dict[str, str])
    ways: dict[str, bool] = field(factory=dict[str, bool])
    # the steps that wait for an answer
    waiting: list[str] = field(factory=list[str])
    # until when, for those that do not wait for ever
    dues: dict[str, float] = field(factory=dict[str, float])
    metadata: dict[str, Any] = field(factory=dict[str, Any])

    @property
    def run(self) -> GraphRun:
        """How it stands."""
        return self.stored.run

    @property
    def seq(self) -> int:
        """The number of its last checkpoint."""
        return self.stored.checkpoints[-1].seq

    def context(self, name: str) -> PipelineContext:
        """What its next steps get."""
        context = PipelineContext(name, self.results, self.metadata, run_id=self.run.run_id)
        context.progress.finished, context.progress.ways = self.finished, self.ways
        return context


def load(stored: StoredRun) -> Loaded:
    """Build the run from its checkpoints; a whole one replaces all before it."""
    loaded = Loaded(stored)
    for checkpoint in stored.checkpoints:
        document = codec.decode(checkpoint.data)
        loaded.results.update(document.get("v", {}))
        loaded.finished.update(document.get("f", {}))
        loaded.ways.update(document.get("w", {}))
        loaded.waiting = document.get("p", [])
        loaded.dues = document.get("d", {})
        loaded.metadata = document.get("m", loaded.metadata)
    return loaded


class Position:
    """What there is to record of a run: the context that its steps share."""

    def __init__(self, context: PipelineContext) -> None:
        self._context = context
        # the facts as they were recorded last
        self._facts = b""

    def document(self, changed_by: Sequence[str] | None = None) -> dict[str, Any]:
        """Results, finished steps, choices, pauses and facts; or only what these steps returned,
        the choices, and the facts if they changed.
        """
        context, progress = self._context, self._context.progress
        results, finished, facts = context.step_results, progress.finished, facts_of(context)
        # Compared as bytes, because a fact may have been changed in place.
        encoded = codec.encode({"m": facts})
        changed, self._facts = encoded != self._facts, encoded
        if changed_by is None:
            dues = {name: due for name, due in progress.waiting.items() if due is not None}
            whole = {"v": results, "f": finished, "w": progress.ways, "m": facts}
            return {**whole, "p": list(progress.waiting), **({"d": dues} if dues else {})}
        document: dict[str, Any] = {
            "v": {name: results[name] for name in changed_by if finished[name] == "c"},
            "f": {name: finished[name] for name in changed_by},
        }
        if progress.ways:
            document["w"] = progress.ways
        if changed:
            document["m"] = facts
        return document


def facts_of(context: PipelineContext) -> dict[str, Any]:
    """The metadata, without what the pipeline itself puts there."""
    ours = (STEP_RESULTS, TOTAL_DURATION)
    return {key: value for key, value in context.metadata.items() if key not in ours}
