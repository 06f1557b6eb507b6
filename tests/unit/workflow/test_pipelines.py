"""Pipelines: order, failures, limits, choices, steps side by side."""

import anyio
import anyio.lowlevel
import pytest

from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.infra.resilience.types import RetryConfig
from lexigram.resilience import RetryPolicy
from lexigram.result import Err, Ok
from lexigram.workflow.errors import (
    PipelineExecutionError,
    PipelineStepError,
    PipelineValidationError,
    WorkflowStateError,
    WorkflowTimeoutError,
)
from lexigram.workflow.pipeline import (
    ConditionalStep,
    FunctionStep,
    ParallelStep,
    Pipeline,
    PipelineContext,
    PipelineStep,
    conditional,
    parallel,
    pipeline_step,
    step,
)

pytestmark = pytest.mark.anyio


def named(log, name, result=None):
    def work(context):
        log.append(name)
        return result

    return FunctionStep(name, work)


def statuses(context):
    return {name: done.status.value for name, done in context.executions.items()}


async def onboarding(context_type, premium):
    """The example of the specification, word for word."""
    log = []

    def validate_input(context):
        log.append("validate")
        return Ok(context.metadata["user"])

    def is_premium(context):
        return premium

    async def handle_premium(context):
        log.append("premium")

    async def handle_standard(context):
        log.append("standard")

    async def send_email(context):
        log.append("email")
        return "mailed"

    async def send_sms(context):
        log.append("sms")
        return "texted"

    pipeline = Pipeline("onboarding", steps=[
        FunctionStep("validate", validate_input),
        ConditionalStep("route", is_premium,
            FunctionStep("premium", handle_premium),
            FunctionStep("standard", handle_standard),
        ),
        ParallelStep("notify", [
            FunctionStep("email", send_email),
            FunctionStep("sms", send_sms),
        ]),
    ])  # fmt: skip
    context = PipelineContext("onboarding", metadata={"user": "ada"})
    result = await pipeline.execute(context)
    return log, result


@pytest.mark.parametrize(("premium", "way"), [(True, "premium"), (False, "standard")])
async def test_the_onboarding_example_of_the_specification_runs_in_list_order(premium, way):
    log, result = await onboarding(PipelineContext, premium)
    context = result.unwrap()
    assert log[:2] == ["validate", way]
    assert sorted(log[2:]) == ["email", "sms"]
    assert context.get_result("validate") == "ada"
    assert context.get_result("notify") == ["mailed", "texted"]
    assert context.get_metadata("total_duration") >= 0
    assert list(context.metadata["step_results"]) == list(context.executions)


async def test_dependencies_come_first_and_ties_keep_the_order_of_the_list():
    log = []
    late = named(log, "late")
    late.dependencies = ("c", "a")
    steps = [late, named(log, "a"), named(log, "b"), named(log, "c")]
    pipeline = Pipeline("order", steps)
    assert pipeline.execution_order == ("a", "b", "c", "late")
    (await pipeline.execute()).unwrap()
    assert log == ["a", "b", "c", "late"]


async def test_steps_run_one_after_the_other_unless_asked_otherwise():
    running, most = 0, 0

    async def work(context):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        running -= 1

    steps = [FunctionStep(f"s{n}", work) for n in range(4)]
    (await Pipeline("one", steps).execute()).unwrap()
    assert most == 1
    (await Pipeline("all", steps, concurrent=True).execute()).unwrap()
    assert most == 4


async def test_a_concurrent_pipeline_begins_a_step_when_its_dependencies_are_over():
    log = []

    def logged(name):
        async def work(context):
            log.append(f"+{name}")
            await anyio.lowlevel.checkpoint()
            log.append(f"-{name}")

        return work

    steps = [
        FunctionStep("end", logged("end"), ["left", "right"]),
        FunctionStep("left", logged("left")),
        FunctionStep("right", logged("right")),
    ]
    (await Pipeline("p", steps, concurrent=True).execute()).unwrap()
    assert log == ["+left", "+right", "-left", "-right", "+end", "-end"]


async def test_a_plain_value_is_an_ok_and_an_exception_is_an_err():
    values = Pipeline("v", [FunctionStep("a", lambda c: 1), FunctionStep("b", lambda c: Ok(2))])
    assert (await values.execute()).unwrap().step_results == {"a": 1, "b": 2}

    def broken(context):
        raise KeyError("x")

    error = (await Pipeline("e", [FunctionStep("a", broken)]).execute()).unwrap_err()
    assert isinstance(error, PipelineExecutionError)
    assert error.step_name == "a"
    assert isinstance(error.error, KeyError)
    assert error.details["pipeline"] == "e"


async def test_an_err_with_an_exception_of_its_own_stays_an_err_and_cleanup_runs():
    class Mine(Exception):
        pass

    cleaned = []
    failing = FunctionStep(
        "a", lambda c: Err(Mine("no")), cleanup_func=lambda c: cleaned.append("a")
    )
    result = await Pipeline("p", [failing]).execute()
    assert isinstance(result.unwrap_err().error, Mine)
    assert cleaned == ["a"]


async def test_an_err_that_is_no_exception_is_told_as_one():
    result = await Pipeline("p", [FunctionStep("a", lambda c: Err("too small"))]).execute()
    assert isinstance(result.unwrap_err().error, PipelineStepError)
    assert "too small" in str(result.unwrap_err())


async def test_a_step_with_a_timeout_keeps_its_result_as_it_is():
    ok = Pipeline("p", [FunctionStep("a", lambda c: Ok(1), timeout=30)])
    assert (await ok.execute()).unwrap().get_result("a") == 1
    bad = Pipeline("p", [FunctionStep("a", lambda c: Err(ValueError("no")), timeout=30)])
    context = PipelineContext()
    assert isinstance((await bad.execute(context)).unwrap_err().error, ValueError)
    assert statuses(context) == {"a": "failed"}


async def test_a_step_that_takes_too_long_is_cancelled_and_may_recover():
    async def forever(context):
        await anyio.sleep_forever()

    context = PipelineContext()
    result = await Pipeline("p", [FunctionStep("a", forever, timeout=0.01)]).execute(context)
    assert isinstance(result.unwrap_err().error, WorkflowTimeoutError)
    saved = FunctionStep("a", forever, timeout=0.01, error_handler=lambda c, e: "instead")
    assert (await Pipeline("p", [saved]).execute()).unwrap().get_result("a") == "instead"


async def test_a_run_that_takes_too_long_is_cancelled_as_a_whole():
    cleaned = []

    async def forever(context):
        await anyio.sleep_forever()

    slow = FunctionStep("a", forever, cleanup_func=lambda c: cleaned.append("a"))
    result = await Pipeline("p", [slow], timeout=0.01).execute()
    assert isinstance(result.unwrap_err().error, WorkflowTimeoutError)
    assert cleaned == ["a"]


async def test_resilience_retries_a_step_and_is_applied_once():
    calls = []

    def flaky(context):
        calls.append(1)
        return Ok("done") if len(calls) == 3 else Err(OSError("away"))

    policy = RetryPolicy(RetryConfig(max_attempts=5, base_delay=0.0, jitter=False))
    pipeline = Pipeline("p", [step("a", flaky, resilience=policy)])
    assert (await pipeline.execute()).unwrap().get_result("a") == "done"
    assert len(calls) == 3


async def test_should_skip_may_be_a_bool_a_result_or_a_coroutine():
    async def later(context):
        return Ok(True)

    def with_condition(name, condition):
        return FunctionStep(name, lambda c: name, skip_condition=condition)

    steps = [
        with_condition("a", lambda c: True),
        with_condition("b", lambda c: Ok(True)),
        with_condition("c", later),
        with_condition("d", lambda c: False),
    ]
    context = (await Pipeline("p", steps).execute()).unwrap()
    assert statuses(context) == {
        "a": "skipped",
        "b": "skipped",
        "c": "skipped",
        "d": "completed",
    }
    assert context.executions["a"].skipped_reason == "Condition not met"


async def test_a_condition_to_skip_that_fails_fails_the_step():
    broken = FunctionStep("a", lambda c: 1, skip_condition=lambda c: Err(ValueError("hm")))
    assert isinstance((await Pipeline("p", [broken]).execute()).unwrap_err().error, ValueError)


async def test_an_error_handler_recovers_with_a_value_and_not_with_none():
    def broken(context):
        raise ValueError("no")

    recovered = FunctionStep("a", broken, error_handler=lambda c, e: Ok(f"saved from {e}"))
    context = (await Pipeline("p", [recovered]).execute()).unwrap()
    assert context.get_result("a") == "saved from no"
    assert statuses(context) == {"a": "completed"}
    told = FunctionStep("a", broken, error_handler=lambda c, e: None)
    assert (await Pipeline("p", [told]).execute()).is_err()


async def test_a_cleanup_that_fails_fails_a_step_that_succeeded():
    def broken(context):
        raise OSError("locked")

    step_ = FunctionStep("a", lambda c: 1, cleanup_func=broken)
    error = (await Pipeline("p", [step_]).execute()).unwrap_err()
    assert isinstance(error.error, OSError)
    assert any("cleaning up" in note for note in error.error.__notes__)


async def test_without_fail_fast_only_what_depends_on_the_failure_is_left_out():
    log = []

    def broken(context):
        raise ValueError("no")

    steps = [
        FunctionStep("bad", broken),
        FunctionStep("child", lambda c: log.append("child"), ["bad"]),
        FunctionStep("grandchild", lambda c: log.append("grandchild"), ["child"]),
        named(log, "free"),
    ]
    for concurrent in (False, True):
        log.clear()
        context = PipelineContext()
        pipeline = Pipeline("p", steps, concurrent=concurrent)
        assert (await pipeline.execute(context, fail_fast=False)).is_err()
        assert log == ["free"]
        assert context.executions["child"].skipped_reason == "'bad' failed"
        assert context.failed_steps == ["bad"]
        assert context.successful_steps == ["free"]
        assert context.has_failed()


async def test_fail_fast_cancels_siblings_whose_cleanup_still_runs():
    cleaned = []
    begun = anyio.Event()

    async def slow(context):
        begun.set()
        await anyio.sleep_forever()

    async def bad(context):
        await begun.wait()
        raise ValueError("no")

    steps = [
        FunctionStep("slow", slow, cleanup_func=lambda c: cleaned.append("slow")),
        FunctionStep("bad", bad),
    ]
    for outer in (
        Pipeline("p", [ParallelStep("both", steps)]),
        Pipeline("p", steps, concurrent=True),
    ):
        cleaned.clear()
        begun = anyio.Event()
        context = PipelineContext()
        error = (await outer.execute(context)).unwrap_err()
        assert "no" in str(error)
        assert cleaned == ["slow"]
        assert context.executions["slow"].skipped_reason == "Cancelled"


async def test_a_parallel_step_without_fail_fast_lets_all_end_and_tells_every_failure():
    log = []

    def broken(context):
        raise ValueError("no")

    inner = [FunctionStep("x", broken), FunctionStep("y", broken), named(log, "z")]
    result = await Pipeline("p", [parallel("all", inner, fail_fast=False)]).execute()
    error = result.unwrap_err().error
    assert error.step_name == "x"
    assert any("'y' failed too" in note for note in error.__notes__)
    assert log == ["z"]


@pytest.mark.parametrize(
    "condition",
    [
        lambda c: True,
        lambda c: Ok(True),
        lambda c: said(True),  # a lambda that returns a coroutine
        lambda c: said(Ok(True)),
    ],
)
async def test_a_condition_may_be_a_bool_a_result_or_a_coroutine(condition):
    choice = conditional("if", condition, FunctionStep("yes", lambda c: "yes"))
    context = (await Pipeline("p", [choice]).execute()).unwrap()
    assert context.get_result("if") == "yes"
    assert context.get_result("yes") == "yes"


async def said(value):
    return value


async def test_a_condition_without_an_else_gives_none_and_one_that_fails_fails():
    no = conditional("if", lambda c: False, FunctionStep("yes", lambda c: "yes"))
    assert (await Pipeline("p", [no]).execute()).unwrap().step_results == {"if": None}
    bad = conditional("if", lambda c: Err(ValueError("?")), FunctionStep("yes", lambda c: 1))
    assert isinstance((await Pipeline("p", [bad]).execute()).unwrap_err().error, ValueError)


async def test_a_decorated_function_is_a_step_with_its_name():
    @pipeline_step(dependencies=["a"])
    def second(context):
        return context.get_result("a") + 1

    pipeline = Pipeline("p", [second, FunctionStep("a", lambda c: 1)])
    assert (await pipeline.execute()).unwrap().get_result("second") == 2


async def test_a_step_of_ones_own_has_all_its_methods_called():
    log = []

    class Mine(PipelineStep):
        async def should_skip(self, context):
            log.append("should_skip")
            return False

        async def execute(self, context):
            log.append("execute")
            raise ValueError("no")

        async def on_error(self, context, error):
            log.append("on_error")
            return Ok("saved")

        async def cleanup(self, context):
            log.append("cleanup")

    assert (await Pipeline("p", [Mine("m")]).execute()).unwrap().output == "saved"
    assert log == ["should_skip", "execute", "on_error", "cleanup"]


def test_a_bad_definition_is_refused_with_everything_that_is_wrong_and_a_fix_for_each():
    def work(context):
        return None

    inner = FunctionStep("inner", work, ["a"])
    with pytest.raises(PipelineValidationError) as raised:
        Pipeline(
            "bad",
            [
                FunctionStep("a", work, ["b"]),
                FunctionStep("b", work, ["a"]),
                FunctionStep("twice", work),
                FunctionStep("twice", work, ["nowhere"]),
                ParallelStep("around", [inner]),
                FunctionStep("outer", work, ["inner"]),
            ],
        )
    assert isinstance(raised.value, ValueError)
    texts = [problem.text for problem in raised.value.problems]
    assert texts == [
        "2 steps are called 'twice'",
        "step 'twice' depends on 'nowhere', which is unknown",
        "step 'outer' depends on 'inner', which is inside another step",
        "step 'inner' inside 'around' has dependencies",
        "the steps a → b → a wait for each other",
    ]
    assert all(problem.fix for problem in raised.value.problems)


def test_a_step_that_does_not_fit_is_not_added():
    pipeline = Pipeline("p", [FunctionStep("a", lambda c: 1)])
    for bad in (FunctionStep("a", lambda c: 1), FunctionStep("b", lambda c: 1, ["x"])):
        with pytest.raises(ValueError, match="problem"):
            pipeline.add_step(bad)
    assert pipeline.execution_order == ("a",)
    pipeline.add_step(FunctionStep("b", lambda c: 2, ["a"]))
    assert pipeline.execution_order == ("a", "b")


def test_a_function_that_cannot_take_the_context_is_refused():
    with pytest.raises(LexigramError, match="cannot take the context"):
        FunctionStep("a", lambda: 1)


async def test_a_step_that_wants_services_without_a_container_is_refused_before_the_run():
    def work(context, clock: int):
        return None

    with pytest.raises(PipelineValidationError, match="asks for clock"):
        await Pipeline("p", [FunctionStep("a", work)]).execute()


async def test_a_context_serves_one_run_at_a_time():
    gate = anyio.Event()

    async def wait(context):
        await gate.wait()

    pipeline = Pipeline("p", [FunctionStep("a", wait)])
    context = PipelineContext()
    async with anyio.create_task_group() as group:
        group.start_soon(pipeline.execute, context)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(WorkflowStateError, match="used by run"):
            await pipeline.execute(context)
        gate.set()
    (await pipeline.execute(context)).unwrap()


async def test_a_run_can_be_cancelled_by_its_id():
    async def forever(context):
        await anyio.sleep_forever()

    pipeline = Pipeline("p", [FunctionStep("a", forever)])
    results = []

    async def run():
        results.append(await pipeline.execute(run_id="r"))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        assert await pipeline.cancel("r")
    assert "was cancelled" in str(results[0].unwrap_err())
    assert not await pipeline.cancel("r")


async def test_cancellation_from_outside_passes_and_cleans_up():
    cleaned = []

    async def forever(context):
        await anyio.sleep_forever()

    step_ = FunctionStep("a", forever, cleanup_func=lambda c: cleaned.append("a"))
    pipeline = Pipeline("p", [step_])
    with anyio.move_on_after(0.01) as scope:
        await pipeline.execute()
    assert scope.cancelled_caught
    assert cleaned == ["a"]


async def test_pictures_show_dependencies_ways_and_how_a_run_went():
    pipeline = Pipeline(
        'say "hi"',
        [
            FunctionStep("a", lambda c: 1),
            ConditionalStep("if", lambda c: False, FunctionStep("yes", lambda c: 1), None, ["a"]),
        ],
    )
    dot = pipeline.to_dot()
    assert dot.startswith(
        'digraph "say \\"hi\\"" {\n    rankdir=LR;\n    n0 [label="a", shape=box];'
    )
    assert "n0 -> n1;" in dot
    context = (await pipeline.execute()).unwrap()
    picture = pipeline.to_mermaid(context)
    assert "n0 --> n1" in picture
    assert 'n1 -.->|"yes"| n2' in picture
    assert "class n0 completed" in picture
    assert "#b7e1cd" in pipeline.to_dot(context)
