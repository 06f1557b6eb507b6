"""Process pools with real processes: limits, crashes, kills, and what is left after them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.e2e.processes import work
from tests.processes import Popen

from lexigram.contracts.core.errors import NotFoundError
from lexigram.processes import (
    ProcessCallError,
    ProcessCrashedError,
    ProcessMemoryError,
    ProcessPool,
    ProcessPoolClosedError,
    ProcessTimeoutError,
)

pytestmark = [pytest.mark.anyio, pytest.mark.promise]

PROGRAM = Path(__file__).with_name("parent.py")
MEGABYTE = 1024 * 1024
GUARD = 120.0


@pytest.fixture
async def pool():
    async with ProcessPool(2) as made:
        yield made


def is_running(number):
    """False too for a zombie: whoever should collect it may never do so in a container."""
    try:
        facts = Path(f"/proc/{number}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return facts.rpartition(")")[2].split()[0] != "Z"


async def until(predicate):
    """As `wait_until`, whose frames would make a predicate that reads files a blocking call."""
    with anyio.fail_after(GUARD):
        while not (answer := predicate()):  # noqa: ASYNC110 - the state of other processes
            await anyio.sleep(0.01)
    return answer


async def number_in(path):
    await until(lambda: path.exists() and path.read_text())
    return int(path.read_text())


async def test_a_call_is_done_in_another_process_that_is_used_again(pool):
    first = await pool.run(work.pid)
    assert first != os.getpid()
    assert await pool.run(work.pid) == first


async def test_it_is_used_again_although_this_process_has_much_memory(pool):
    ours = bytearray(400 * MEGABYTE)
    first = await pool.run(work.pid)
    assert await pool.run(work.pid) == first
    assert len(ours) > 0


async def test_values_come_back_equal(pool):
    value = (None, True, 2**70, 1.5, "é\ud800", b"\0", [(1,), {2}], {3: {"four": frozenset("5")}})
    assert await pool.run(work.echo, value) == value


async def test_several_megabytes_travel_both_ways(pool):
    data = os.urandom(5 * MEGABYTE)
    assert await pool.run(work.echo, data) == data


async def test_no_more_processes_than_its_size_work_at_once(pool):
    numbers = set()

    async def call():
        numbers.add(await pool.run(work.pid))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(call)
    assert 1 <= len(numbers) <= 2


async def test_a_pool_that_is_not_used_starts_nothing():
    async with ProcessPool() as pool:
        assert pool.size >= 1
        assert not pool._children


async def test_a_call_beyond_its_time_is_ended_and_its_neighbour_goes_on(pool, tmp_path):
    done = []

    async def neighbour():
        done.append(await pool.run(work.wait_for, str(tmp_path / "go")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(neighbour)
        number = await pool.run(work.pid)
        with pytest.raises(ProcessTimeoutError, match="took longer than 0.3 s"):
            await pool.run(work.spin, str(tmp_path / "pid"), timeout=0.3)
        assert not is_running(number)
        (tmp_path / "go").touch()
    assert done == [True]


async def test_a_call_beyond_its_memory_is_ended_with_the_limit_in_the_error(pool):
    first = await pool.run(work.pid)
    with pytest.raises(ProcessMemoryError) as raised:
        await pool.run(work.fill, 500 * MEGABYTE, memory=100 * MEGABYTE)
    assert raised.value.details["memory"] == 100 * MEGABYTE
    assert await pool.run(work.fill, 500 * MEGABYTE) == 500 * MEGABYTE
    assert not is_running(first)


async def test_limits_are_those_of_one_call(pool):
    await pool.run(work.echo, 1, timeout=60, memory=500 * MEGABYTE)
    assert all(limit < 0 for limit in await pool.run(work.limits))
    time, memory = await pool.run(work.limits, timeout=60, memory=500 * MEGABYTE)
    assert time >= 60
    assert memory == 500 * MEGABYTE


async def test_a_process_that_once_needed_much_memory_is_not_used_again(pool):
    first = await pool.run(work.touch_and_return, 400 * MEGABYTE)
    assert await pool.run(work.pid) != first
    assert not is_running(first)


@pytest.mark.parametrize(
    ("function", "number"), [(work.crash, signal.SIGSEGV), (work.kill_itself, signal.SIGKILL)]
)
async def test_a_crash_is_the_failure_of_one_call(pool, tmp_path, function, number):
    done = []

    async def neighbour():
        done.append(await pool.run(work.wait_for, str(tmp_path / "go")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(neighbour)
        with pytest.raises(ProcessCrashedError) as raised:
            await pool.run(function)
        assert raised.value.details["exit_code"] == -number
        assert await pool.run(work.echo, "again") == "again"
        (tmp_path / "go").touch()
    assert done == [True]


async def test_a_process_that_was_killed_while_it_waited_is_replaced(pool):
    first = await pool.run(work.pid)
    os.kill(first, signal.SIGKILL)
    await until(lambda: not pool._idle[0].is_alive)
    assert await pool.run(work.pid) != first


async def test_cancelling_the_caller_ends_the_process(pool, tmp_path):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.run, work.spin, str(tmp_path / "pid"))
        number = await number_in(tmp_path / "pid")
        tasks.cancel_scope.cancel()
    assert not is_running(number)


async def test_closing_the_pool_ends_every_process(tmp_path):
    pool = ProcessPool(2)
    caught = []

    async def call():
        try:
            await pool.run(work.spin, str(tmp_path / "pid"))
        except ProcessPoolClosedError as error:
            caught.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        idle = await pool.run(work.pid)
        busy = await number_in(tmp_path / "pid")
        await pool.aclose()
    assert len(caught) == 1
    assert not is_running(idle)
    assert not is_running(busy)
    with pytest.raises(ProcessPoolClosedError):
        await pool.run(work.pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_no_process_is_left_when_the_parent_ends(tmp_path, how):
    process = Popen(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        numbers = [await number_in(tmp_path / name) for name in ("busy", "idle")]
        assert all(map(is_running, numbers))
        process.send_signal(how)
        await until(lambda: not any(map(is_running, numbers)))
    finally:
        process.kill()
        process.wait()


async def test_what_a_function_prints_is_no_answer_and_it_has_no_input(pool, capfd):
    assert await pool.run(work.print_and_read) == ""
    assert capfd.readouterr().out == ""


async def test_an_exception_of_ours_and_a_built_in_one_are_raised_as_they_are(pool):
    with pytest.raises(NotFoundError) as ours:
        await pool.run(work.raise_ours)
    assert (ours.value.message, ours.value.hint) == ("no such thing", "look again")
    assert ours.value.details["key"] == 7
    assert "object object" in ours.value.details["by"]
    assert "raise_ours" in ours.value.__notes__[0]
    with pytest.raises(KeyError, match="name"):
        await pool.run(work.raise_built_in)


@pytest.mark.parametrize(
    ("function", "name", "text"),
    [
        (work.raise_foreign, "ForeignError", "1 and 2"),
        (work.leave, "SystemExit", "3"),
        (work.raise_group, "ExceptionGroup", "two (2 sub-exceptions)"),
    ],
)
async def test_any_other_exception_is_named_with_its_traceback(pool, function, name, text):
    with pytest.raises(ProcessCallError) as raised:
        await pool.run(function)
    assert raised.value.details["raised"] == name
    assert text in raised.value.message
    assert function.__name__ in raised.value.details["traceback"]
    assert await pool.run(work.echo, 1) == 1


async def test_what_would_not_come_back_equal_is_refused(pool):
    with pytest.raises(ValueError, match="an argument of .*echo"):
        await pool.run(work.echo, object())
    with pytest.raises(ValueError, match="the result of .*return_object"):
        await pool.run(work.return_object)


async def test_a_function_that_no_other_process_can_find_is_refused(pool):
    with pytest.raises(ValueError, match="top level of a module"):
        await pool.run(lambda: 1)
