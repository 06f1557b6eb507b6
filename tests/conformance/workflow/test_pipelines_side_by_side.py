"""Two runs of one pipeline at once in one database, as two processes would have them."""

import anyio
import pytest

from lexigram.sql import Database
from lexigram.workflow.checkpoint import SqlCheckpointStore
from lexigram.workflow.pipeline import FunctionStep, Pipeline

pytestmark = pytest.mark.anyio
POSTGRES = pytest.param("postgres", marks=pytest.mark.service("postgresql"))


@pytest.fixture(params=["sqlite", POSTGRES])
def database(request):
    return request.getfixturevalue(request.param)


async def test_two_runs_that_fail_at_once_go_on_each_with_its_own_results(database):
    ran, both, broken = [], anyio.Event(), True

    def work(name):
        async def run(context):
            who = context.metadata["who"]
            ran.append((who, name))
            if name == "b" and broken:
                if ran.count(("x", "b")) and ran.count(("y", "b")):
                    both.set()
                await both.wait()  # both have stored their first step by now
                raise ValueError("no")
            return f"{who}-{name}"

        return run

    def made(opened):
        steps = [FunctionStep(name, work(name)) for name in "abc"]
        return Pipeline("p", steps, checkpoint_store=SqlCheckpointStore(opened))

    async with Database(database.config) as other:
        of = {"x": made(database), "y": made(other)}

        async def begin(who):
            assert (await of[who].execute({"who": who}, run_id=who)).is_err()

        async with anyio.create_task_group() as group:
            for who in of:
                group.start_soon(begin, who)
        broken = False
        # Each goes on in the other's place: only the id says whose results they are.
        for who, pipeline in (("x", of["y"]), ("y", of["x"])):
            context = (await pipeline.resume(who)).unwrap()
            assert context.step_results == {name: f"{who}-{name}" for name in "abc"}
    for who in "xy":
        assert [name for whose, name in ran if whose == who] == ["a", "b", "b", "c"]
