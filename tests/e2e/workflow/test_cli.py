"""``lexigram workflow`` and the generators, as a user calls them."""

import json
import sys
from pathlib import Path

import pytest
from tests import processes

LEXIGRAM = Path(sys.executable).with_name("lexigram")

APP = '''
from lexigram.app import Application
from lexigram.contracts.workflow import SagaStoreProtocol
from lexigram.result import Ok
from lexigram.sql import SqlConfig, SqlModule
from lexigram.workflow import PipelineContext, WorkflowBuilder, WorkflowModule, saga_step, workflow
from lexigram.workflow.saga import AbstractSaga

@workflow("greet")
async def greet(context: PipelineContext) -> str:
    """Say hello."""
    if context.metadata.get("input") == "nobody":
        raise ValueError("nobody is there")
    return f"hello {context.metadata['input']}"

@workflow()
def ask() -> WorkflowBuilder:
    return (
        WorkflowBuilder("ask")
        .add_node("person", human_prompt="Send it?", output_key="answer")
        .add_node("end", lambda state: f"said {state['answer']}")
        .add_edge("person", "end")
        .set_entry("person")
        .set_terminal("end")
    )

@workflow("order")
class OrderSaga(AbstractSaga[object]):
    def __init__(self, order_id: str, store: SagaStoreProtocol) -> None:
        super().__init__(store)
        self.order_id = order_id

    def get_id(self) -> str:
        return self.order_id

    @saga_step()
    async def charge(self):
        return Ok(None)

def create() -> Application:
    sql = SqlModule.configure(SqlConfig(url="sqlite:///flows.db"))
    return Application("flows", modules=[sql, WorkflowModule.stub(workflows=[greet, ask, OrderSaga])])
'''


@pytest.fixture
def lexigram(tmp_path):
    tmp_path.joinpath("flows.py").write_text(APP)

    def call(*arguments, code=0, app=True):
        target = ["--app", "flows:create"] if app else []
        done = processes.run(
            [str(LEXIGRAM), *arguments, *target],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return call


@pytest.mark.timeout(900)
def test_list_run_pause_status_resume_history_and_graph(lexigram):
    listed = json.loads(lexigram("workflow", "ls", "--json"))["workflows"]
    assert [(item["name"], item["kind"]) for item in listed] == [
        ("greet", "pipeline"),
        ("ask", "graph"),
        ("order", "saga"),
    ]
    assert "hello Ada" in lexigram("workflow", "run", "greet", "--input", "Ada")
    failed = json.loads(lexigram("workflow", "run", "greet", "--input", "nobody", "--json", code=1))
    assert "nobody is there" in failed["error"]["message"]
    paused = json.loads(lexigram("workflow", "run", "ask", "--json"))
    assert (paused["status"], paused["prompt"]) == ("paused", "Send it?")
    run_id = paused["run_id"]
    status = json.loads(lexigram("workflow", "status", run_id, "--json"))
    assert status["steps"] == {"person": "paused", "end": "waiting"}
    resumed = json.loads(lexigram("workflow", "resume", run_id, "--response", "yes", "--json"))
    assert resumed["output"] == "said yes"
    saga = lexigram("workflow", "run", "order", "--arg", "order_id=o-1", "--json")
    assert json.loads(saga)["status"] == "completed"
    assert json.loads(saga)["run_id"] == "o-1"
    assert "charge: done" in lexigram("workflow", "status", "o-1")
    again = lexigram("workflow", "run", "order", "--arg", "order_id=o-1")
    assert again == "order completed\nrun o-1\n"
    runs = json.loads(lexigram("workflow", "history", "--json"))["runs"]
    assert {(run["workflow"], run["status"]) for run in runs} == {
        ("ask", "completed"),
        ("greet", "completed"),
        ("greet", "failed"),
    }
    mermaid = lexigram("workflow", "graph", "ask", "--run", run_id)
    assert "class n0 done" in mermaid
    assert lexigram("workflow", "graph", "greet", "--dot").startswith('digraph "greet"')


def test_an_unknown_workflow_fails_with_a_hint(lexigram):
    told = json.loads(lexigram("workflow", "run", "great", "--json", code=1))
    assert "did you mean 'greet'" in told["error"]["hint"]


MAIN = """
from lexigram.app import Application
from lexigram.workflow import WorkflowModule

def create():
    names = ["workflows.approve_order", "pipelines.onboarding", "sagas.book_trip"]
    return Application("made", modules=[WorkflowModule.stub(workflows=names)])
"""


@pytest.mark.timeout(900)
def test_generated_code_runs_as_it_is(lexigram, tmp_path):
    lexigram("generate", "workflow_def", "approve-order", app=False)
    lexigram("generate", "pipeline", "onboarding", "--steps", "validate,send mail", app=False)
    lexigram("generate", "saga_step", "book-trip", "--steps", "flight,hotel", app=False)
    tmp_path.joinpath("made.py").write_text(MAIN)

    def run(*arguments):
        done = lexigram("workflow", "run", *arguments, "--json", "--app", "made:create", app=False)
        return json.loads(done)

    assert run("approve-order", "--input", "o-1")["output"] == "approve-order: o-1"
    assert run("onboarding", "--input", "ada")["output"] == "send mail of ada"
    assert run("book-trip", "--arg", "saga_id=t-1")["status"] == "completed"
    listed = lexigram("workflow", "ls", "--json", "--app", "made:create", app=False)
    assert [item["name"] for item in json.loads(listed)["workflows"]] == [
        *("approve-order", "onboarding", "book-trip")
    ]


def test_a_generator_refuses_a_name_that_cannot_be_one(lexigram):
    lexigram("generate", "pipeline", "1 2", code=2, app=False)
