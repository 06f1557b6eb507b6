"""The workflows of an application are known to its fleet."""

import pytest

from lexigram.app import Application
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.di import Module, Provider, module
from lexigram.sql import SqlConfig, SqlModule
from lexigram.workflow import WorkflowModule, workflow
from lexigram.workflow.durable import DurableFleet, OrchestrationNotFoundError
from lexigram.workflow.errors import HumanInputRequiredError
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.pipeline import FunctionStep, Pipeline
from lexigram.workflow.saga import AbstractSaga, saga_step

pytestmark = pytest.mark.anyio


class Rates:
    """A service of the application."""

    rate = 3


async def price(state, rates: Rates):
    return {"output": state["pieces"] * rates.rate}


async def tax(state, rates: Rates):
    return {"tax": rates.rate}


async def ask(state):
    if state.get("_timed_out"):
        return {"said": "nobody"}
    raise HumanInputRequiredError("well?", timeout=0.02)


@workflow("bill")
def bill() -> WorkflowBuilder:
    graph = WorkflowBuilder("bill").add_node("price", price).add_node("tax", tax)
    graph.add_node("ask", ask).add_node("begin", lambda state: {})
    for name in ("price", "tax"):
        graph.add_edge("begin", name).add_edge(name, "ask")
    return graph.set_entry("begin").set_terminal("ask")


async def double(context):
    return context.metadata["pieces"] * 2


@workflow("trip")
class Trip(AbstractSaga):
    """A saga with an argument and a service."""

    def __init__(self, number: int, rates: Rates):
        super().__init__()
        self.number, self.rates = number, rates
        self.paid = 0

    def get_id(self):
        return f"trip-{self.number}"

    def snapshot(self):
        return {"paid": self.paid}

    @saga_step()
    async def pay(self):
        self.paid = self.number * self.rates.rate


doubling = Pipeline("doubling", [FunctionStep("double", double)])


class RatesProvider(Provider):
    """Brings the service."""

    name = "rates"

    async def register(self, container):
        container.singleton(Rates, Rates())


@module(imports=[WorkflowModule.scope(bill, doubling, Trip)], providers=[RatesProvider])
class Shop(Module):
    """A module with workflows of its own."""


@pytest.fixture(
    params=[
        "sqlite_url",
        pytest.param("postgres_url", marks=pytest.mark.service("postgresql")),
    ]
)
def url(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def fleet(url):
    sql = SqlModule.configure(SqlConfig(url=url))
    async with Application("shop", modules=[sql, WorkflowModule.stub(), Shop]) as app:
        yield app.container.get(DurableFleet)


BILL = {"input": "", "pieces": 7, "output": 21, "tax": 3, "said": "nobody"}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "given", "state"),
    [
        ("bill", {"pieces": 7}, BILL),
        ("doubling", {"pieces": 7}, {"results": {"double": 14}, "metadata": {"pieces": 7}}),
        ("trip", {"number": 7}, {"paid": 21}),
    ],
)
async def test_a_workflow_of_the_application_runs_on_its_fleet_with_its_services(
    fleet, name, given, state
):
    runs = fleet.orchestrated
    async with fleet.working({"*": 2}):
        run = await runs.ended(await runs.submit(name, given))
    assert run.status is RunStatus.COMPLETED, run
    assert run.state == state


async def test_a_name_that_the_application_does_not_have_is_refused(fleet):
    with pytest.raises(OrchestrationNotFoundError):
        await fleet.orchestrated.submit("nothing")
