"""A process is killed between any two nodes of a graph; another one goes on."""

import signal
from pathlib import Path

import anyio
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

WORKER = Path(__file__).with_name("worker.py")


async def effects(database, run_id):
    """In the order in which they were written; a server finds rows in any order."""
    found = await database.execute_query(
        "SELECT node FROM effects WHERE run = ? ORDER BY number", (run_id,)
    )
    return [row["node"] for row in found.rows]


async def settled(database, *tables):
    """Nobody writes them: a server may still be at work for a client that was killed."""
    if database.dialect == "postgresql":
        async with database.transaction():
            await database.execute(f"LOCK TABLE {', '.join(tables)} IN SHARE MODE")


async def kill_after(process, writes):
    """Let the process store so many steps, then kill it while it stands still."""
    stored = []
    for number in range(writes):
        line = await anyio.to_thread.run_sync(process.stdout.readline)
        stored += [name for name in line.strip().split(",") if name]
        if number < writes - 1:
            process.stdin.write("\n")
            process.stdin.flush()
    process.send_signal(signal.SIGKILL)
    await anyio.to_thread.run_sync(process.communicate)
    return stored


async def killed(start, url, shape, counts):
    """One process per count, killed after so many stored steps; what each had stored."""
    stored = {}

    async def one(writes):
        process = start(url, shape, "first", f"run-{writes}")
        stored[writes] = await kill_after(process, writes)

    async with anyio.create_task_group() as group:
        for writes in counts:
            group.start_soon(one, writes)
    return stored


async def recovered(start, url, shape, counts):
    """A new process goes on with all of them; how each ended."""
    process = start(url, shape, "again", *(f"run-{writes}" for writes in counts))
    output, errors = await anyio.to_thread.run_sync(process.communicate)
    assert process.returncode == 0, errors
    return [line for line in output.splitlines() if line.startswith("end")]


@pytest.mark.promise
async def test_a_kill_between_any_two_nodes_of_a_row_repeats_none(database, url, start):
    names = [f"n{number}" for number in range(10)]
    counts = range(1, 10)
    stored = await killed(start, url, "row", counts)
    ends = await recovered(start, url, "row", counts)
    assert ends == [f"end {','.join(names)} 10"] * 9
    for writes in counts:
        assert stored[writes] == names[:writes]
        assert sorted(await effects(database, f"run-{writes}")) == names


async def test_a_kill_inside_branches_repeats_no_node_whose_step_was_stored(database, url, start):
    counts = range(1, 5)
    stored = await killed(start, url, "branches", counts)
    await settled(database, "effects")
    before = {writes: await effects(database, f"run-{writes}") for writes in counts}
    ends = await recovered(start, url, "branches", counts)
    # Step by step, and within a step in the order of the edges.
    assert ends == ["end n0,n1,n4,n6,n2,n5,n3,n7,n8,n9 10"] * 4
    for writes in counts:
        after = await effects(database, f"run-{writes}")
        assert set(after) == {f"n{number}" for number in range(10)}
        # What ran but was not stored yet may run again, and nothing else.
        twice = {name for name in after if after.count(name) > 1}
        assert twice <= set(before[writes]) - set(stored[writes])
