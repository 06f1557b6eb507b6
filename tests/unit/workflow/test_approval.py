"""Approvals: by functions at once, by persons over time."""

import anyio
import pytest

from lexigram import clock
from lexigram.testing.fakes import FakeClock
from lexigram.workflow.approval import (
    ApprovalChain,
    ApprovalNode,
    ApprovalPolicy,
    ApprovalStatus,
    ApprovalStep,
)
from lexigram.workflow.approval.models import decided
from lexigram.workflow.checkpoint import InMemoryCheckpointStore
from lexigram.workflow.errors import HumanInputRequiredError, WorkflowStepError
from lexigram.workflow.graph import WorkflowBuilder

pytestmark = pytest.mark.anyio

YES, NO, OPEN, OUT = (
    ApprovalStatus.APPROVED,
    ApprovalStatus.REJECTED,
    ApprovalStatus.PENDING,
    ApprovalStatus.SKIPPED,
)


@pytest.mark.parametrize(
    ("policy", "answers", "verdict"),
    [
        ("all", [YES, YES], True),
        ("all", [YES, NO], False),
        ("all", [NO, OPEN], False),
        ("all", [YES, OPEN], None),
        ("all", [YES, OUT], True),
        ("any", [NO, YES], True),
        ("any", [NO, NO], False),
        ("any", [NO, OPEN], None),
        ("majority", [YES, YES, NO], True),
        ("majority", [YES, NO], False),
        ("majority", [YES, NO, OPEN], None),
        ("majority", [YES, YES, OPEN], True),
        ("majority", [YES, OUT, OUT], True),
        ("all", [], True),
        ("any", [OUT], True),
    ],
)
def test_policies(policy, answers, verdict):
    statuses = {str(number): status for number, status in enumerate(answers)}
    assert decided(ApprovalPolicy(policy), statuses) is verdict


def says(answer):
    async def approver():
        return answer

    return approver


async def test_functions_decide_at_once_and_conditions_leave_them_out():
    chain = ApprovalChain(ApprovalPolicy.MAJORITY)
    chain.add_step(ApprovalStep("a", says(True))).add_step(ApprovalStep("b", lambda c: c["ok"]))
    chain.add_step(ApprovalStep("c", says(False), condition=lambda: False))
    assert await chain.execute({"ok": True}) == (True, {"a": YES, "b": YES, "c": OUT})
    assert await chain.execute({"ok": False}) == (False, {"a": YES, "b": NO, "c": OUT})
    assert await ApprovalChain().execute() == (True, {})
    with pytest.raises(ValueError, match="two approval steps 'a'"):
        chain.add_step(ApprovalStep("a", says(True)))


async def test_a_verdict_does_not_wait_for_who_is_not_needed():
    async def never(context):
        await anyio.sleep_forever()

    chain = ApprovalChain(ApprovalPolicy.ANY)
    chain.add_step(ApprovalStep("slow", never)).add_step(ApprovalStep("quick", says(True)))
    with anyio.fail_after(60):
        assert await chain.execute() == (True, {"slow": OPEN, "quick": YES})


@pytest.mark.parametrize(("escalate_to", "verdict"), [(None, False), (says(True), True)])
async def test_who_does_not_answer_in_time_is_replaced_or_counts_as_no(escalate_to, verdict):
    async def never():
        await anyio.sleep_forever()

    chain = ApprovalChain(timeout=0.01, escalate_to=escalate_to)
    chain.add_step(ApprovalStep("slow", never))
    assert (await chain.execute())[0] is verdict


async def test_a_bound_approval_service_is_asked_for_persons():
    asked = []

    class Service:
        async def request_approval(self, workflow_id, step_id, context):
            asked.append((workflow_id, step_id, context["approver"]))
            return True

        async def cancel_approval(self, approval_id): ...

    chain = ApprovalChain(approvals=Service()).add_step(ApprovalStep("legal", "Ada"))
    assert (await chain.execute(workflow_id="w"))[0] is True
    assert asked == [("w", "legal", "Ada")]
    with pytest.raises(WorkflowStepError, match="nobody can be asked for 'legal'"):
        await ApprovalChain().add_step(ApprovalStep("legal", "Ada")).execute()


def build(store, policy="all", **options):
    chain = ApprovalChain(ApprovalPolicy(policy), **options)
    chain.add_step(ApprovalStep("legal", "Ada")).add_step(ApprovalStep("money", "Bob"))
    chain.add_step(ApprovalStep("robot", lambda state: True))
    builder = WorkflowBuilder("deal").add_node("ok", ApprovalNode("ok", chain, prompt="Deal?"))
    return builder.set_entry("ok").set_terminal("ok").build(checkpoints=store)


async def paused(call):
    with pytest.raises(HumanInputRequiredError) as caught:
        await call
    return caught.value


async def test_persons_answer_one_after_the_other_in_different_processes():
    store = InMemoryCheckpointStore()
    pause = await paused(build(store).execute("x"))
    assert pause.prompt == "Deal? (legal, money: Ada, Bob)"
    again = await paused(build(store).resume(pause.run_id, {"money": True}))
    assert again.prompt == "Deal? (legal: Ada)"
    state = (await build(store).resume(pause.run_id, True)).unwrap().final_state
    assert state["approved"] is True
    assert state["ok_approvals"] == {"legal": "approved", "money": "approved", "robot": "approved"}


async def test_one_no_ends_an_approval_of_all():
    store = InMemoryCheckpointStore()
    pause = await paused(build(store).execute("x"))
    state = (await build(store).resume(pause.run_id, {"legal": False})).unwrap().final_state
    assert state["approved"] is False
    assert state["ok_approvals"]["money"] == "pending"


@pytest.mark.parametrize("wrong", ["yes", True, {"who": True}, {"legal": "yes"}, {}])
async def test_an_answer_that_does_not_fit_is_refused_and_the_run_still_waits(wrong):
    engine = build(InMemoryCheckpointStore())
    pause = await paused(engine.execute("x"))
    with pytest.raises(WorkflowStepError, match="legal"):
        await engine.resume(pause.run_id, wrong)
    assert (await engine.resume(pause.run_id, {"legal": True, "money": True})).is_ok()


async def test_a_silent_person_is_replaced_by_the_next_and_then_counts_as_no():
    store = InMemoryCheckpointStore()
    engine = build(store, timeout=60, escalate_to="Eve")
    with clock.use(FakeClock()) as time:
        pause = await paused(engine.execute("x"))
        assert await engine.time_out_pauses() == []
        time.advance(61)
        assert await engine.time_out_pauses() == [pause.run_id]
        again = await paused(engine.recover(pause.run_id))
        assert again.prompt == "Deal? (legal, money: Eve)"
        assert await engine.time_out_pauses() == []
        time.advance(61)
        assert await engine.time_out_pauses() == [pause.run_id]
    result = (await engine.recover(pause.run_id)).unwrap()
    assert result.final_state["approved"] is False


async def test_the_next_person_answers_for_all_who_were_silent():
    engine = build(InMemoryCheckpointStore(), timeout=60, escalate_to="Eve")
    with clock.use(FakeClock()) as time:
        pause = await paused(engine.execute("x"))
        time.advance(61)
        await engine.time_out_pauses()
        result = (await engine.resume(pause.run_id, True)).unwrap()
    assert result.final_state["approved"] is True
