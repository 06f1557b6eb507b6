"""Runs of pipelines in every cache we ship: kept, resumed, forgotten when they completed."""

from datetime import UTC, datetime

import pytest

from lexigram.workflow.errors import WorkflowNotFoundError
from lexigram.workflow.pipeline import FunctionStep, Pipeline

pytestmark = pytest.mark.anyio
MOMENT = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


async def test_a_run_goes_on_where_it_failed_and_is_forgotten_when_it_completed(cache):
    ran, broken = [], True

    def read(context):
        ran.append("read")
        return {"when": MOMENT, "sizes": (1, 2), "who": context.metadata["who"]}

    def send(context):
        ran.append("send")
        if broken:
            raise OSError("no line")
        return context.get_result("read")

    def made():
        steps = [FunctionStep("read", read), FunctionStep("send", send, ["read"])]
        return Pipeline("post", steps, checkpoint_store=cache)

    for who in ("ann", "bob"):
        assert (await made().execute({"who": who}, run_id=who)).is_err()
    broken = False
    for who in ("bob", "ann"):
        output = (await made().resume(who)).unwrap().output
        # The same, of the same types.
        assert output == {"when": MOMENT, "sizes": (1, 2), "who": who}
    assert ran == ["read", "send", "read", "send", "send", "send"]
    with pytest.raises(WorkflowNotFoundError):
        await made().resume("ann")
