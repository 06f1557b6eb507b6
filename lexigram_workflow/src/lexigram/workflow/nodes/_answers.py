"""Take the value out of what agents, models, tools and inner workflows answer."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from lexigram.contracts.core.result import Err, Ok
from lexigram.workflow.errors import HumanInputRequiredError, WorkflowStepError

# Which checkpoint of an inner run asked: an answer that is given again after a crash must not
# go to a later question.
PAUSED_AT = "_paused_at"


@contextmanager
def mark_pause() -> Generator[None]:
    """Let the outer run remember which pause of the inner one it waits for."""
    try:
        yield
    except HumanInputRequiredError as pause:
        pause.remember = {**pause.remember, PAUSED_AT: pause.details.get("checkpoint")}
        raise


def value_of(answer: Any, attribute: str) -> Any:
    """The value of an Ok, or of the attribute that holds it; the error of an Err is raised."""
    said: Any = answer
    if isinstance(answer, Err):
        error: Any = said.error
        raise error if isinstance(error, Exception) else WorkflowStepError("answer", str(error))
    value: Any = said.value if isinstance(answer, Ok) else said
    return getattr(value, attribute, value)
