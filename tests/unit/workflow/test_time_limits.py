"""A time that is none is refused by name, where it is given: NaN waits for ever or not at all."""

from math import inf, nan

import pytest

from lexigram.result import Ok
from lexigram.workflow.approval import ApprovalChain
from lexigram.workflow.bulk import BulkOperationConfig
from lexigram.workflow.config import GraphConfig
from lexigram.workflow.core import TransformPipe
from lexigram.workflow.errors import HumanInputRequiredError
from lexigram.workflow.execution import WorkflowRunner
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.pipeline import FunctionStep, ParallelStep, Pipeline
from lexigram.workflow.saga import AbstractSaga, SagaStep
from lexigram.workflow.state import State, StateMachine

pytestmark = pytest.mark.anyio


class Trip(AbstractSaga):
    def get_id(self):
        return "trip"


async def nothing(*_):
    return Ok(None)


def step(**terms):
    return FunctionStep("a", lambda context: None, **terms)


def saga(**terms):
    Trip().add_step(SagaStep("a", nothing, **terms))


def runner(**terms):
    WorkflowRunner(Pipeline("p", [step()]), **terms)


LIMITS = {
    "step": lambda seconds: Pipeline("p", [step(timeout=seconds)]),
    "step inside": lambda seconds: Pipeline("p", [ParallelStep("b", [step(timeout=seconds)])]),
    "pipeline": lambda seconds: Pipeline("p", [step()], timeout=seconds),
    "pipeline of an application": lambda seconds: Pipeline("p", []).equip(timeout=seconds),
    "saga step": lambda seconds: saga(timeout=seconds),
    "hook of a saga": lambda seconds: Trip(hook_timeout=seconds),
    "lease of a saga": lambda seconds: Trip(lease=seconds),
    "state machine": lambda seconds: StateMachine([State("a")], "a", timeout=seconds),
    "pipe": lambda seconds: TransformPipe(timeout=seconds),
    "approval": lambda seconds: ApprovalChain(timeout=seconds),
    "pause": lambda seconds: HumanInputRequiredError("well?", timeout=seconds),
    "runner": lambda seconds: runner(timeout=seconds),
    "bulk operation": lambda seconds: BulkOperationConfig(timeout=seconds),
}
DELAYS = {
    "saga step": lambda seconds: saga(retry_delay=seconds),
    "runner": lambda seconds: runner(retry_delay=seconds),
}


@pytest.mark.parametrize("seconds", [nan, -1.0, 0.0])
@pytest.mark.parametrize("give", LIMITS.values(), ids=LIMITS)
def test_a_time_limit_that_is_no_time_is_refused(give, seconds):
    with pytest.raises(Exception, match=r"nan|-1\.0|0\.0|longer than 0|must be > 0"):
        give(seconds)


@pytest.mark.parametrize("give", LIMITS.values(), ids=LIMITS)
def test_infinity_is_no_limit(give):
    give(inf)


@pytest.mark.parametrize("seconds", [nan, -1.0, inf, 1e300])
@pytest.mark.parametrize("give", DELAYS.values(), ids=DELAYS)
def test_a_delay_that_never_ends_or_is_none_is_refused(give, seconds):
    with pytest.raises(ValueError, match="retry_delay"):
        give(seconds)


@pytest.mark.parametrize("field", ["node_timeout", "total_timeout", "checkpoint_ttl"])
@pytest.mark.parametrize("seconds", [nan, -1.0])
def test_a_time_of_a_graph_that_is_none_is_refused(field, seconds):
    with pytest.raises(Exception, match=field):
        GraphConfig(**{field: seconds})


async def test_a_pause_with_an_infinite_timeout_waits_and_is_answered():
    def ask(state):
        if "_answer" in state:
            return state["_answer"]
        raise HumanInputRequiredError("well?", timeout=inf)

    builder = WorkflowBuilder("g", GraphConfig(checkpoint_enabled=True)).add_node("a", ask)
    engine = builder.set_entry("a").set_terminal("a").build()
    with pytest.raises(HumanInputRequiredError) as pause:
        await engine.execute("x")
    assert (await engine.resume(pause.value.run_id, "yes")).unwrap().output == "yes"
