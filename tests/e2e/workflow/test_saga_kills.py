"""Processes are killed between any two steps of a saga and anywhere in a bulk run."""

import os
import random
import signal
from pathlib import Path

import anyio
import pytest
from tests.e2e.workflow.test_kills import effects, settled

from lexigram.contracts.workflow import SagaState
from lexigram.workflow.saga import SqlSagaStore

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

WORKER = Path(__file__).with_name("saga_worker.py")
ROUNDS = int(os.environ.get("LEX_CHAOS_ROUNDS", "1"))
STEPS = [f"s{number}" for number in range(6)]


async def killed_after(process, lines):
    """Let the process say so many lines, then kill it; what it said."""
    said = []
    for number in range(lines):
        line = await anyio.to_thread.run_sync(process.stdout.readline)
        assert line, process.stderr.read()
        said.append(line.strip())
        if number < lines - 1 and process.stdin is not None:
            process.stdin.write("\n")
            process.stdin.flush()
    process.send_signal(signal.SIGKILL)
    await anyio.to_thread.run_sync(process.communicate)
    return said


async def ended(process):
    output, errors = await anyio.to_thread.run_sync(process.communicate)
    assert process.returncode == 0, errors
    return [line.removeprefix("end ") for line in output.splitlines() if line.startswith("end")]


async def killed_sagas(start, url, kind, counts):
    """One saga per count, killed after so many writes; the effects that were stored then."""
    stored = {}

    async def one(writes):
        *_, said = await killed_after(start(url, kind, "first", f"saga-{writes}"), writes)
        stored[writes] = [] if said == "-" else said.split(",")

    async with anyio.create_task_group() as group:
        for writes in counts:
            group.start_soon(one, writes)
    return stored


@pytest.mark.promise
async def test_a_kill_between_any_two_steps_of_a_saga_repeats_none(database, url, start):
    counts = range(1, 8)  # the write of the start, and one after each of six steps
    stored = await killed_sagas(start, url, "saga", counts)
    assert [len(stored[writes]) for writes in counts] == list(range(7))
    ids = [f"saga-{writes}" for writes in counts]
    assert await ended(start(url, "saga", "again", *ids)) == ["ok"] * 7
    store = SqlSagaStore(database)
    for saga_id in ids:
        assert await effects(database, saga_id) == [f"+{name}" for name in STEPS]
        assert (await store.load(saga_id))[0] is SagaState.COMPLETED
    assert await store.unfinished() == []


@pytest.mark.promise
async def test_a_kill_while_a_saga_is_undone_repeats_no_compensation(database, url, start):
    # start, five steps, the turn, then one write after each of five compensations
    counts = range(6, 13)
    stored = await killed_sagas(start, url, "undo", counts)
    ids = [f"saga-{writes}" for writes in counts]
    assert await ended(start(url, "undo", "again", *ids)) == ["s5"] * 7
    store = SqlSagaStore(database)
    undone = [f"-{name}" for name in reversed(STEPS[:5])]
    for writes, saga_id in zip(counts, ids, strict=True):
        after = await effects(database, saga_id)
        if writes == 6:
            # Killed before the last step began or could be stored: it counts as cut off.
            assert [entry for entry in after if entry.startswith("-")] == ["-s5", *undone]
        else:
            assert after == [f"+{name}" for name in STEPS] + undone
        assert set(stored[writes]) <= set(after)
        assert (await store.load(saga_id))[0] is SagaState.FAILED


@pytest.mark.promise
async def test_a_bulk_run_that_is_killed_again_and_again_repeats_no_finished_batch(
    database, url, start
):
    seed = random.randrange(10**9)
    print("seed", seed)
    chance = random.Random(seed)
    for number in range(ROUNDS):
        operation = f"op-{number}"
        finished = set()
        for _ in range(3):
            process = start(url, "bulk", "first", operation)
            given = await killed_after(process, chance.randint(1, 10))
            await settled(database, "effects", "lexigram_bulk_batches")
            marked = await database.execute_query(
                "SELECT batch_id FROM lexigram_bulk_batches WHERE operation_id = ?", (operation,)
            )
            finished |= {row["batch_id"] for row in marked.rows}
            # What the caller was given was written down before.
            assert finished >= set(map(int, given))
        before = await effects(database, operation)
        (end,) = await ended(start(url, "bulk", "again", operation))
        after = await effects(database, operation)
        processed, skipped = map(int, end.split())
        assert set(after) == {str(item) for item in range(1000)}
        assert processed + skipped == 1000
        assert skipped == 20 * len(finished)
        for batch in finished:
            for item in range(batch * 20, batch * 20 + 20):
                assert after.count(str(item)) == before.count(str(item))


async def test_two_processes_never_work_on_one_bulk_operation(database, url, start):
    first = start(url, "bulk", "first", "op")
    assert await anyio.to_thread.run_sync(first.stdout.readline)
    second = start(url, "bulk", "beside", "op")
    said, errors = await anyio.to_thread.run_sync(second.communicate)
    # Either the first still worked, or it was done and nothing was left.
    if second.returncode:
        assert "bulk operation 'op' is worked on by" in errors
        assert said == ""
    else:
        assert said == "end 0 1000\n"
    await ended(first)
    assert sorted(map(int, await effects(database, "op"))) == list(range(1000))
