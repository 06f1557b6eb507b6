"""``lexigram workflow`` for durable runs: the verbs, their tables, JSON, and exit codes."""

import json
import sys

import anyio
import pytest

from lexigram.cli.main import main
from lexigram.sql import Database
from lexigram.workflow.durable import (
    DurableEngine,
    LifeCycleEvent,
    LifecycleHandler,
    NewRun,
    RunPlan,
    StepPlan,
)

APP = '''
from pathlib import Path
from typing import Protocol

import anyio
from lexigram.app import Application
from lexigram.blobs import BlobConfig, BlobModule
from lexigram.sql import SqlConfig, SqlModule
from lexigram.workflow import WorkflowModule, workflow
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable.config import DurableConfig

HERE = Path(__file__).parent


async def check(doc, limit: int = 100):
    """Refuse what is too large."""
    if doc.file_size > limit:
        raise ValueError(f"{doc.file_size} bytes")
    return {"size": doc.file_size}


class Archive(Protocol):
    """Nobody binds it."""

    def put(self, text: str) -> None: ...


async def lacks(run_step, archive: Archive):
    """Ask for it."""


async def tell(run_group):
    """Take its time, as somebody who tells others does."""
    await anyio.sleep(0.3)
    (HERE / f"told-{run_group.id}").touch()


@workflow("order")
def order() -> WorkflowBuilder:
    graph = WorkflowBuilder("order").add_node("price", lambda s: {"price": 3 * s["pieces"]})
    graph.add_node("ask", human_prompt="{pieces} for {price}?", output_key="said")
    graph.add_node("send", send).add_edge("price", "ask").add_edge("ask", "send")
    return graph.set_entry("price").set_terminal("send")


async def send(state):
    if state["said"] == "no":
        raise ValueError("nobody wants it")
    return {"output": state["said"]}


def create() -> Application:
    durable = DurableConfig(
        workflow_dir=str(HERE / "workflows"),
        param_dir=str(HERE / "params"),
        user_param_dir=str(HERE / "user"),
        default_workflow_id="tiny",
        poll_interval=0.1,
    )
    return Application(
        "fleet",
        modules=[
            SqlModule.configure(SqlConfig(url=f"sqlite:///{HERE}/fleet.db")),
            BlobModule.configure(BlobConfig(root=str(HERE / "blobs"))),
            WorkflowModule.configure(
                WorkflowConfig(durable=durable),
                workflows=[order],
                step_handlers={"check": check, "tell": tell},
            ),
        ],
    )


def unmigrated() -> Application:
    """Tables are made by the command only, as on PostgreSQL."""
    sql = SqlConfig(url=f"sqlite:///{HERE}/bare.db", migrate="never")
    return Application("bare", modules=[SqlModule.configure(sql), WorkflowModule.stub()])


def no_blobs() -> Application:
    sql = SqlConfig(url=f"sqlite:///{HERE}/graphs.db")
    return Application("graphs", modules=[SqlModule.configure(sql), WorkflowModule.configure(workflows=[order])])


def without() -> Application:
    return Application("plain", modules=[WorkflowModule.configure(WorkflowConfig())])
'''
TINY = """
id: tiny
name: Tiny Workflow
meta: {}
item_steps:
  validate: {name: check it, retries: 1, method: check, parameters: {}}
lifecycle_events:
  group_end: [{name: tell, method: tell}]
"""
PARAMS = "id: small\nname: Small\nmeta: {}\nconfig: {validate: {limit: 3}}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch, blocking_calls_fail):
    blocking_calls_fail.deactivate()  # the command line has the process to itself
    for name, text in (("workflows/tiny", TINY), ("params/small", PARAMS)):
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir()
        path.write_text(text)
    (tmp_path / "docs").mkdir()
    for name in "ab":
        (tmp_path / "docs" / f"{name}.txt").write_text(name * 4)
    (tmp_path / "durable_cli_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def lex(folder, capfd, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))

    def call(*arguments, code=0, app="create"):
        sys.modules.pop("durable_cli_app", None)
        got = main(["workflow", *arguments, "--app", f"durable_cli_app:{app}"])
        out, err = capfd.readouterr()
        assert got == code, f"{got}: {out}{err}"
        return out if "--json" in arguments else out + err

    return call


@pytest.fixture
def data(lex):
    return lambda *arguments, code=0: json.loads(lex(*arguments, "--json", code=code))


def test_documents_are_started_followed_failed_and_retried(lex, data, folder):
    done = data("start", "docs", "--here", "--name", "first")
    assert (done["group_status"], done["completed"], done["total_runs"]) == ("COMPLETED", 2, 2)
    failed = data("start", "docs", "-p", "small", "--here", code=1)
    group = failed["group"]
    assert (failed["group_status"], failed["failed"]) == ("FAILED", 2)
    assert [one["message"] for one in failed["failures"]] == ["4 bytes", "4 bytes"]
    assert "4 bytes" in lex("steps", "--status", "failed")
    listed = data("groups")
    assert (listed["total"], [one["status"] for one in listed["groups"]]) == (
        2,
        ["FAILED", "COMPLETED"],
    )
    assert "2/2" not in lex("runs", "--group", str(group))
    assert len(data("runs", "--status", "COMPLETED")["runs"]) == 2
    stats = data("stats", str(group))
    assert stats["steps"][0]["attempts"] == 2
    assert "average" in lex("stats", str(group))
    run = data("runs", "--group", str(group))["runs"][0]["id"]
    assert data("steps", str(run))["steps"][0]["status"] == "FAILED"
    assert data("retry", str(group))["retried"] == 2
    (folder / f"told-{group}").unlink()
    watched = lex("watch", str(group), "--here", code=1)
    assert "FAILED" in watched
    assert "(docs/a.txt) failed at check it: ValueError: 4 bytes" in watched
    # the handler of the end of the group was called by the worker that is gone now
    assert (folder / f"told-{group}").exists()
    assert data("retry", "--run", str(run))["retried"] == 1
    assert data("pause", str(group))["paused"] == 1
    assert data("resume", "--group", str(group))["resumed"] == 1
    assert data("cancel", str(group))["cancelled"] == 1
    assert "1 cancelled" in lex("watch", str(group), code=1)
    assert data("prune", "--older-than", "0")["removed"] == 4
    assert data("groups")["groups"] == []


def test_a_start_takes_overrides_and_a_key(lex, data):
    one = data("start", "docs/a.txt", "--set", "validate.limit=9", "--key", "k", "--force")
    assert data("runs")["runs"][0]["run_params"]["force"] is True
    assert data("start", "docs/a.txt", "--key", "k")["group"] == one["group"]
    wrong = data("start", "docs/a.txt", "--set", "validate.limit=many", code=1)
    assert "validate.limit" in wrong["error"]["message"]
    assert "did you mean" in lex("start", "docs/a.txt", "-w", "tyny", code=1)
    assert "no file" in lex("start", "nothing.txt", code=2)
    assert "STEP.NAME=VALUE" in lex("start", "docs", "--set", "limit=3", code=2)


def test_definitions_and_parameters_are_shown_and_checked(lex, data, folder):
    assert [one["id"] for one in data("definitions")["definitions"]][-1] == "tiny"
    assert "check it" in lex("definitions", "tiny")
    assert data("definitions", "tiny")["item_steps"][0]["method"] == "check"
    assert "limit" in lex("params", "small")
    assert "fine" in lex("validate", "workflows/tiny.yaml", "params/small.yaml")
    (folder / "bad.yaml").write_text(TINY.replace("retries: 1", "retires: 1"))
    told = lex("validate", "bad.yaml", code=1)
    assert "bad.yaml:6" in told
    assert "retries" in told
    (folder / "evil.yaml").write_text(TINY.replace("method: check", "method: os.system"))
    assert "handler_prefixes" in lex("validate", "--upload", "evil.yaml", code=1)
    assert lex("validate", "nowhere.yaml", code=1)
    (folder / "lacks.yaml").write_text(
        TINY.replace("method: check", "method: durable_cli_app.lacks")
    )
    text = lex("validate", "lacks.yaml", code=1)
    assert "nothing provides Archive" in text
    assert "lacks(archive)" in text
    (folder / "absent.yaml").write_text(TINY.replace("method: check", "method: no_such.handler"))
    assert "there is no module 'no_such'" in lex("validate", "absent.yaml", code=1)


def test_locks_workers_and_what_is_not_there(lex, data):
    assert data("locks")["locks"] == []
    assert data("workers")["workers"] == []
    assert "--force" in lex("unlock", "K", code=2)
    assert data("unlock", "K", "--force", code=1)["released"] is False
    assert "no group 9" in lex("stats", "9", code=1)
    assert "no run 9" in lex("steps", "9", code=1)
    assert "GROUP, or --run" in lex("retry", code=2)
    assert "no status" in lex("runs", "--status", "done", code=2)
    assert "SqlModule" in lex("groups", code=1, app="without")


def test_db_upgrade_makes_the_tables_and_without_it_the_start_says_so(lex, folder, capfd):
    assert "lexigram db upgrade" in lex("groups", code=1, app="unmigrated")
    assert main(["db", "upgrade", "--url", f"sqlite:///{folder}/bare.db"]) == 0
    capfd.readouterr()
    assert "no groups" in lex("groups", app="unmigrated")


def test_a_graph_is_submitted_asks_and_is_answered(lex, data):
    waits = data("submit", "order", "--arg", "pieces=7", "--here", "--key", "o-1")
    run, group = waits["run_id"], waits["group_id"]
    assert (waits["status"], waits["done"]) == ("RUNNING", ["price"])
    assert waits["questions"] == [{"run_id": run, "step": "ask", "prompt": "7 for 21?"}]
    # a second call with the key finds it, and says how to answer
    told = lex("submit", "order", "--arg", "pieces=7", "--key", "o-1")
    assert "ask asks: 7 for 21?" in told
    assert f"answer with: lexigram workflow answer {run} ANSWER" in told
    [question] = data("questions", "--group", str(group))["questions"]
    assert (question["run_id"], question["step"]) == (run, "ask")
    assert "7 for 21?" in lex("questions")
    [listed] = data("runs")["runs"]
    assert (listed["state"], listed["asks"]) == ("parked", "7 for 21?")
    assert "7 for 21?" in lex("runs")
    assert "7 for 21?" in lex("steps", str(run))
    assert "price = 21" in lex("show", str(run))
    assert "done: price" in lex("show", str(run))
    unknown = data("answer", str(run), "yes", "--step", "tell", code=1)["error"]
    assert (unknown["code"], "'ask'" in unknown["hint"]) == ("LEX_ERR_WF_151", True)
    assert data("answer", str(run), '{"yes": [1]}')["step"] == "ask"
    assert "does not wait" in lex("answer", str(run), "again", code=1)
    assert data("watch", str(group), "--here")["group_status"] == "COMPLETED"
    ended = data("show", str(run))
    assert (ended["status"], ended["state"]["output"]) == ("COMPLETED", {"yes": [1]})
    assert data("questions")["questions"] == []


def test_a_submission_that_fails_or_cannot_be_made_says_why(lex, data):
    run = str(data("submit", "order", "--arg", "pieces=1", "--here")["run_id"])
    assert "has its answer" in lex("answer", run, "no")
    watched = lex("watch", "1", "--here", code=1)
    assert "group 1 FAILED" in watched
    assert "nobody wants it" in watched
    assert "nobody wants it" in lex("show", run)
    assert "did you mean 'order'" in lex("submit", "ordre", code=1)
    assert "LEX_ERR_WF_132" in lex("show", "77", code=1)
    assert "LEX_ERR_WF_132" in lex("answer", "77", "x", code=1)
    assert "--delay" in lex("submit", "order", "--delay", "-1", code=2)
    done = data("start", "docs", "--here")
    first = data("runs", "--group", str(done["group"]))["runs"][0]["id"]
    assert "is no pipeline, graph or saga" in lex("show", str(first), code=1)


def test_delay_tenant_priority_and_key_reach_runs_of_documents_and_graphs(lex, data):
    more = ("--delay", "3600", "--tenant", "t", "--priority", "4")
    started = data("start", "docs", *more, "--key", "k")
    assert data("start", "docs", *more, "--key", "k")["group"] == started["group"]
    data("submit", "order", "--arg", "pieces=1", *more)
    listed = data("runs")["runs"]
    assert len(listed) == 3
    assert {(one["state"], one["tenant"], one["priority"]) for one in listed} == {
        ("delayed", "t", 4)
    }
    assert "--delay" in lex("start", "docs", "--delay", "inf", code=2)


def test_graphs_are_followed_without_a_blob_store(lex):
    """Only documents need one."""
    assert "7 for 21?" in lex("submit", "order", "--arg", "pieces=7", "--here", app="no_blobs")
    lex("answer", "1", "yes", app="no_blobs")
    assert "COMPLETED: 1 completed" in lex("watch", "1", "--here", app="no_blobs")
    assert "a blob store" in lex("start", "docs", app="no_blobs", code=1)


@pytest.fixture
def handlers(folder, capfd, lex):
    """What the doctor says about handlers."""

    def check(app="create"):
        sys.modules.pop("durable_cli_app", None)
        assert main(["doctor", f"durable_cli_app:{app}", "--json"]) == 0
        checks = json.loads(capfd.readouterr().out)["checks"]
        return next(row for row in checks if row["check"] == "workflow_handlers")

    return check


def test_handlers_that_no_worker_has_are_told_by_stats_workers_and_doctor(lex, data, handlers):
    assert handlers()["message"].endswith("is not there yet")
    lex("groups")  # makes the tables
    assert handlers()["status"] == "ok"
    anyio.run(submit_absent)
    message = "no worker for handler shop.absent (pool parse)"
    assert message in lex("stats", "1")
    assert data("stats", "1")["problems"] == [message]
    assert message in lex("workers")
    assert [one["handler"] for one in data("workers")["missing"]] == ["shop.absent"]
    found = handlers()
    assert (found["status"], found["message"]) == ("warning", message)
    assert "start a worker" in found["hint"]
    assert handlers("without")["message"] == "no database: there are no durable runs"


async def submit_absent():
    async with Database("sqlite:///fleet.db") as database:
        engine = DurableEngine(database)
        step = StepPlan(name="a", step_type="parse", handler="shop.absent")
        await engine.submit(RunPlan(workflow_id="w", steps=[step]), [NewRun()])
        [kind] = await engine.store.kinds()
        await engine.store.heartbeat("a worker", (), [kind.id])


def test_lifecycle_handlers_that_no_worker_has_are_in_stats_workers_and_doctor(lex, data, handlers):
    lex("groups")  # makes the tables
    anyio.run(submit_ended)
    message = "no worker for handler shop.notify (event item_end)"
    assert message in lex("stats", "1")
    assert data("stats", "1")["problems"] == [message]
    assert f"{message}: waiting since 20" in lex("workers")
    [missing] = data("workers")["missing"]
    assert (missing["handler"], missing["pool"], missing["event"]) == (
        "shop.notify",
        None,
        "item_end",
    )
    found = handlers()
    assert (found["status"], found["message"]) == ("warning", message)


async def submit_ended():
    async with Database("sqlite:///fleet.db") as database:
        engine = DurableEngine(database)
        notify = LifecycleHandler(name="notify", handler="shop.notify")
        plan = RunPlan(
            workflow_id="w",
            steps=[StepPlan(name="a", step_type="parse", handler="check")],
            lifecycle={LifeCycleEvent.ITEM_END: [notify]},
        )
        await engine.submit(plan, [NewRun()])
        step = await engine.claim_next_step("a worker", "L")
        assert await engine.complete_step(step.id, "L")
        await engine.store.heartbeat("a worker", lacks_handlers=["shop.notify"])


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        *[
            (c, "--delay", v)
            for c in ("start docs", "submit order")
            for v in ("1e300", "nan", "inf")
        ],
        *[(c, "--priority", v) for c in ("start docs", "submit order") for v in (2**31, 2**63)],
        *[(c, "--key", v) for c in ("start docs", "submit order") for v in ("a\udc80", "x" * 256)],
        *[
            (c, "--tenant", v)
            for c in ("start docs", "submit order")
            for v in ("\udc80", "x" * 256)
        ],
        *[("start docs", "--name", v) for v in ("\udc80", "x" * 256)],
        *[(c, "--offset", 2**63) for c in ("runs", "groups", "steps", "questions")],
        *[(c, "--group", 2**63) for c in ("runs", "steps", "questions")],
        *[("retry", "--run", v) for v in (2**63, -1)],
        *[("submit order", "--arg", v) for v in ("a=1e999", "a=" + "9" * 30)],
        *[("start docs", "--set", v) for v in ("parse.a=1e999", "parse.a=" + "9" * 30)],
        ("prune", "--older-than", "1e12"),
    ],
)
def test_an_option_out_of_bounds_is_exit_code_2_and_named(lex, command, option, value):
    assert option in lex(*command.split(), f"{option}={value}", code=2)


def test_a_number_of_a_group_or_run_out_of_bounds_is_exit_code_2(lex):
    for command in ("stats", "watch", "show", "retry"):
        assert "the number is beyond 64 bits" in lex(command, str(2**63), code=2)
