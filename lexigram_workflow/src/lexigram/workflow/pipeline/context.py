"""What the steps of one run share, and how each of them went."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attrs import define, field

if TYPE_CHECKING:
    from lexigram.workflow.runs._recorder import Recorder

# Where the outcomes of steps and the time of the run are found in the metadata.
STEP_RESULTS = "step_results"
TOTAL_DURATION = "total_duration"


class StepStatus(StrEnum):
    """How a step stands."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


@define
class StepExecutionResult:
    """What became of one step."""

    step_name: str
    status: StepStatus
    result: Any = None
    error: Exception | None = None
    # seconds
    duration: float | None = None
    metadata: dict[str, Any] | None = None
    skipped_reason: str | None = None


@define
class Progress:
    """What is known of a run besides its results: kept by checkpoints."""

    # steps that ended well, with those inside other steps; "s" was skipped, "c" completed
    finished: dict[str, str] = field(factory=dict[str, str])
    # which way conditional steps went
    ways: dict[str, bool] = field(factory=dict[str, bool])
    # steps that wait for an answer, until when if not for ever, and answers for those that did
    waiting: dict[str, float | None] = field(factory=dict[str, float | None])
    answers: dict[str, Any] = field(factory=dict[str, Any])
    # steps that waited, and nobody answered in time
    timed_out: set[str] = field(factory=set[str])
    recorder: Recorder | None = None
    is_running: bool = False


@define
class PipelineContext:
    """One run of a pipeline: what its steps returned, and free facts about it.

    Belongs to one run. What a step returned must not be changed afterwards: a checkpoint keeps
    it as it was. Facts in ``metadata`` may change; they are kept with the next step.
    """

    pipeline_name: str = "default"
    step_results: dict[str, Any] = field(factory=dict[str, Any])
    metadata: dict[str, Any] = field(factory=dict[str, Any])
    # seconds since 1970-01-01 UTC
    start_time: float | None = None
    end_time: float | None = None
    run_id: str | None = None
    progress: Progress = field(factory=Progress, init=False, eq=False, repr=False)

    def get_result(self, step_name: str) -> Any:
        """What the step returned; None when it has not (yet)."""
        return self.step_results.get(step_name)

    def set_result(self, step_name: str, value: Any) -> None:
        """Keep the result of a step; a second call replaces it."""
        self.step_results[step_name] = value

    def get_step_result(self, step_name: str, default: Any = None) -> Any:
        """What the step returned, or the default."""
        return self.step_results.get(step_name, default)

    def set_step_result(self, step_name: str, value: Any) -> None:
        """The same as ``set_result``."""
        self.step_results[step_name] = value

    def add_metadata(self, key: str, value: Any) -> None:
        """Keep a fact."""
        self.metadata[key] = value

    def get_metadata(self, key: str, default: Any = None) -> Any:
        """A fact, or the default."""
        return self.metadata.get(key, default)

    @property
    def answers(self) -> dict[str, Any]:
        """Answers for steps that raised HumanInputRequiredError, by the name of the step."""
        return self.progress.answers

    @property
    def timed_out(self) -> set[str]:
        """Steps that raised HumanInputRequiredError with a timeout and got no answer."""
        return self.progress.timed_out

    @property
    def executions(self) -> dict[str, StepExecutionResult]:
        """How each step went, in the order in which they ended; also those inside others."""
        found: dict[str, StepExecutionResult] = self.metadata.setdefault(STEP_RESULTS, {})
        return found

    @property
    def duration(self) -> float | None:
        """Seconds from start to end; None while it runs."""
        if self.start_time is None or self.end_time is None:
            return None
        return self.end_time - self.start_time

    @property
    def failed_steps(self) -> list[str]:
        """The steps that failed."""
        return self._with_status(StepStatus.FAILED)

    @property
    def successful_steps(self) -> list[str]:
        """The steps that completed in this process; those resumed from a checkpoint too."""
        return [
            name
            for name, done in self.executions.items()
            if done.status is StepStatus.COMPLETED or self.progress.finished.get(name) == "c"
        ]

    @property
    def output(self) -> Any:
        """What the last step that completed returned."""
        return next(reversed(self.step_results.values()), None)

    def has_failed(self) -> bool:
        """True when a step failed."""
        return bool(self.failed_steps)

    def _with_status(self, status: StepStatus) -> list[str]:
        return [name for name, done in self.executions.items() if done.status is status]
