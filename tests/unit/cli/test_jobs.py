"""``lexigram jobs``: what it shows and changes, and that only ``work`` and ``run`` work."""

import pytest

SHOP = """
from pathlib import Path

from lexigram.app import Application
from lexigram.sql import SqlConfig, SqlModule
from lexigram.tasks import JobContext, TasksConfig, TasksModule, job


@job("add", max_retries=0)
async def add(a: int, b: int, context: JobContext) -> int:
    await context.progress(1, 1, "adding")
    return a + b


def create() -> Application:
    file = Path(__file__).parent / "shop.db"
    return Application(
        "shop",
        modules=[
            SqlModule.configure(SqlConfig(url=f"sqlite:///{file}")),
            TasksModule.configure(TasksConfig(), handlers=[add]),
        ],
    )


def in_memory() -> Application:
    return Application(
        "shop", modules=[TasksModule.configure(TasksConfig(backend="memory"), handlers=[add])]
    )
"""


@pytest.fixture
def jobs(lex, write):
    write("shop.py", SHOP)
    write("plain.py", 'from lexigram.app import Application\napp = Application("plain")\n')
    return lambda *arguments, app="shop:create": lex("jobs", *arguments, "--app", app)


def test_run_enqueues_follows_and_tells_the_result(jobs):
    ran = jobs("run", "add", "--arg", "a=1", "--arg", "b=2", "--here")
    assert ran.code == 0, ran.err
    assert ran.out.endswith("completed: 3\n")
    data = jobs("run", "add", "--arg", "a=2", "--arg", "b=3", "--here", "--json").data
    assert (data["status"], data["result"]) == ("completed", 5)


def test_jobs_in_memory_are_done_by_the_command_itself(jobs):
    ran = jobs("run", "add", "--arg", "a=1", "--arg", "b=1", app="shop:in_memory")
    assert (ran.code, ran.out.endswith("completed: 2\n")) == (0, True)


def test_a_job_that_fails_is_exit_code_1_with_its_error(jobs):
    ran = jobs("run", "add", "--arg", "a=1", "--here")
    assert ran.code == 1
    assert "needs an argument 'b'" in ran.out


def test_a_detached_job_waits_can_be_shown_cancelled_and_retried(jobs):
    job_id = jobs("run", "add", "--arg", "a=1", "--arg", "b=2", "--detach").out.strip()
    shown = jobs("show", job_id, "--json").data
    assert (shown["status"], shown["kwargs"]) == ("pending", {"a": 1, "b": 2})
    assert jobs("cancel", job_id).out == f"{job_id} is cancelled\n"
    again = jobs("cancel", job_id)
    assert (again.code, "has ended" in again.err) == (2, True)
    assert jobs("retry", job_id).code == 0
    assert jobs("retry", job_id).code == 2
    assert jobs("show", job_id).out.startswith(f"id: {job_id}\n")


def test_ls_filters_and_does_no_job(jobs):
    ids = [
        jobs("run", "add", "--arg", "a=1", "--queue", name, "--detach").out.strip()
        for name in ("x", "y")
    ]
    rows = jobs("ls", "--json").data["jobs"]
    assert [row["id"] for row in rows] == ids[::-1]
    assert {row["status"] for row in rows} == {"pending"}
    assert [row["id"] for row in jobs("ls", "--queue", "x", "--json").data["jobs"]] == [ids[0]]
    assert jobs("ls", "--status", "failed", "--json").data["jobs"] == []
    assert ids[0] in jobs("ls").out


def test_mistakes_are_told(jobs):
    assert "no status 'odd'" in jobs("ls", "--status", "odd").err
    assert "NAME=VALUE" in jobs("run", "add", "--arg", "a").err
    unknown = jobs("show", "nobody")
    assert (unknown.code, "no job 'nobody'" in unknown.err) == (1, True)
    assert "TasksModule" in jobs("ls", app="plain:app").err


def test_following_ends_after_the_given_time(jobs):
    ran = jobs("run", "add", "--arg", "a=1", "--arg", "b=1", "--elsewhere", "--timeout", "0.05")
    assert ran.code == 2
    assert "lexigram jobs work" in ran.err


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        *[("ls", option, "a\udc80") for option in ("--queue", "--name")],
        *[("ls", "--offset", value) for value in (2**63, -1)],
        *[("run add", "--priority", value) for value in (2**31, -(2**63))],
        *[("run add", "--timeout", value) for value in ("nan", "inf", "1e300")],
        *[("run add", "--arg", value) for value in ("a=NaN", "a=1e999")],
    ],
)
def test_an_option_out_of_bounds_is_exit_code_2_and_named(jobs, command, option, value):
    refused = jobs(*command.split(), f"{option}={value}")
    assert (refused.code, option in refused.err) == (2, True), refused.err
