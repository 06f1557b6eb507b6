"""A process is killed between any two steps of a pipeline; another one goes on."""

from pathlib import Path

import anyio
import pytest
from tests.e2e.workflow.test_kills import effects, kill_after, settled

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

WORKER = Path(__file__).with_name("pipeline_worker.py")
STEPS = ["left", "right", "s0", "s1", "s2", "s3", "s4", "s5", "yes"]
WRITING = ["left", "right", "s0", "s1", "s3", "s5", "yes"]


@pytest.mark.promise
async def test_a_kill_between_any_two_steps_repeats_none_that_was_stored(database, url, start):
    # Writes: s0, s1, the choice, yes, s2, s3, left and right in one or two, s4, s5, the end.
    counts = range(1, 10)
    stored = {}

    async def one(writes):
        stored[writes] = await kill_after(start(url, "first", f"run-{writes}"), writes)

    async with anyio.create_task_group() as group:
        for writes in counts:
            group.start_soon(one, writes)
    await settled(database, "effects")
    before = {writes: await effects(database, f"run-{writes}") for writes in counts}
    process = start(url, "again", *(f"run-{writes}" for writes in counts))
    output, errors = await anyio.to_thread.run_sync(process.communicate)
    assert process.returncode == 0, errors
    ends = [line for line in output.splitlines() if line.startswith("end")]
    assert ends == [f"end {','.join(STEPS)}"] * len(counts)
    for writes in counts:
        after = await effects(database, f"run-{writes}")
        assert sorted(set(after)) == WRITING
        twice = {name for name in after if after.count(name) > 1}
        # Only what ran but was not stored yet may run again: one side of the parallel step.
        assert twice <= (set(before[writes]) - set(stored[writes])) & {"left", "right"}
