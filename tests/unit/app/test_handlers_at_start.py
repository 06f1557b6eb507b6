"""What handlers ask for is checked with the object graph: nothing fails on wiring at its first call."""

import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from lexigram.app import Application
from lexigram.contracts.infra.schedule import Firing
from lexigram.di import Module, Provider, module
from lexigram.di.errors import ContainerValidationError
from lexigram.queue import BusMessage, MessageConsumer, QueueModule
from lexigram.schedule import ScheduleModule, scheduled
from lexigram.tasks import JobContext, TasksModule, job
from lexigram.workflow import WorkflowModule, workflow
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.pipeline import FunctionStep, Pipeline
from lexigram.workflow.saga import AbstractSaga, SagaDefinitionError, saga_step

pytestmark = pytest.mark.anyio


class Mailer(Protocol):
    def send(self, to: str) -> None: ...


class SmtpMailer:
    def send(self, to: str) -> None: ...


@dataclass
class Address:
    street: str


class Welcome(MessageConsumer):
    topic = "t"

    async def handle(self, message: BusMessage, mailer: Mailer) -> None: ...


class WelcomeMany(MessageConsumer):
    topic = "t"

    async def handle_batch(self, messages: list[BusMessage], mailer: Mailer) -> None: ...


@job("send")
async def send(to: str, address: Address, context: JobContext, mailer: Mailer) -> None: ...


@scheduled(every=60.0, name="nightly")
async def nightly(firing: Firing, mailer: Mailer) -> None: ...


async def step(ctx, pages: int, address: Address, mailer: Mailer) -> None: ...


async def node(state, mailer: Mailer) -> None: ...


@workflow("whole")
async def whole(context, mailer: Mailer) -> None: ...


@workflow("makes")
def makes(mailer: Mailer) -> Pipeline:
    raise AssertionError("not called by a check")


@workflow("trip")
class Trip(AbstractSaga):
    def __init__(self, number: int, mailer: Mailer) -> None:
        super().__init__()

    def get_id(self):
        return "trip"


def graph():
    builder = WorkflowBuilder("g").add_node("node", node)
    return builder.set_entry("node").set_terminal("node")


def feature(dynamic):
    """A module of an application that imports the feature."""

    @module(name="Shop", imports=[dynamic])
    class Shop(Module):
        pass

    return Shop


class MailProvider(Provider):
    def __init__(self, service=Mailer):
        super().__init__()
        self.service = service

    async def register(self, container):
        container.singleton(self.service, SmtpMailer)


@module(name="Mail", providers=[MailProvider], exports=[Mailer])
class Mail(Module):
    pass


# By kind: modules, who asks as reports call it, the function, the module that asks.
KINDS = {
    "consumer": (
        lambda: [QueueModule.stub(), feature(QueueModule.scope(Welcome))],
        "consumer Welcome of _QueueModuleScope",
        Welcome.handle,
    ),
    "batch": (
        lambda: [QueueModule.stub(), feature(QueueModule.scope(WelcomeMany))],
        "consumer WelcomeMany of _QueueModuleScope",
        WelcomeMany.handle_batch,
    ),
    "job": (
        lambda: [TasksModule.configure(handlers=[send])],
        "job 'send' of TasksModule",
        send,
    ),
    "job of a feature": (
        lambda: [TasksModule.configure(), feature(TasksModule.scope(send))],
        "job 'send' of TasksModuleFeature",
        send,
    ),
    "schedule": (
        lambda: [ScheduleModule.configure(schedules=[nightly])],
        "schedule 'nightly' of ScheduleModule",
        nightly,
    ),
    "schedule of a feature": (
        lambda: [ScheduleModule.configure(), feature(ScheduleModule.scope(nightly))],
        "schedule 'nightly' of ScheduleModuleFeature",
        nightly,
    ),
    "step handler": (
        lambda: [WorkflowModule.stub(step_handlers={"step": step})],
        "step handler 'step' of WorkflowModule",
        step,
    ),
    "node": (
        lambda: [WorkflowModule.stub(workflows=[graph()])],
        "workflow 'g' of WorkflowModule",
        node,
    ),
    "step of a pipeline": (
        lambda: [WorkflowModule.stub(workflows=[Pipeline("p", [FunctionStep("node", node)])])],
        "workflow 'p' of WorkflowModule",
        node,
    ),
    "function": (
        lambda: [WorkflowModule.stub(workflows=[whole])],
        "workflow 'whole' of WorkflowModule",
        whole,
    ),
    "function that makes one": (
        lambda: [WorkflowModule.stub(workflows=[makes])],
        "workflow 'makes' of WorkflowModule",
        makes,
    ),
    "saga": (
        lambda: [WorkflowModule.stub(), feature(WorkflowModule.scope(Trip))],
        "saga 'trip' of WorkflowModuleFeature",
        Trip.__init__,
    ),
}


async def problems_of(*modules, **options):
    with pytest.raises(ContainerValidationError) as caught:
        await Application("shop", modules=modules, **options).register()
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
async def test_a_service_that_nobody_binds_is_reported_before_anything_boots(kind):
    modules, asker, function = KINDS[kind]
    error = await problems_of(*modules())
    (problem,) = error.problems
    line = inspect.unwrap(function).__code__.co_firstlineno
    text = problem.render()
    assert problem.title == "nothing provides Mailer"
    place = rf"tests/unit/app/{Path(__file__).name}:{line}"
    assert re.search(rf"\(mailer\) +{re.escape(place)}  {re.escape(asker)}\n", text), text
    assert re.search("mailer: Mailer +✗ not bound", text)
    assert "fix: bind it:  container.singleton(Mailer, ...)  in " in text


@pytest.mark.parametrize("kind", KINDS)
async def test_with_the_service_the_graph_is_valid(kind):
    modules, _, _ = KINDS[kind]
    await Application("shop", modules=modules(), providers=[MailProvider]).register()
    await Application("shop", modules=modules(), overrides={Mailer: SmtpMailer()}).register()


async def test_all_that_is_wrong_is_in_one_error():
    error = await problems_of(
        TasksModule.configure(handlers=[send]),
        WorkflowModule.stub(step_handlers={"step": step}, workflows=[whole, Trip]),
    )
    assert [problem.title for problem in error.problems] == ["nothing provides Mailer"] * 2
    assert "also needed by Trip, step" in str(error)


async def test_what_is_data_comes_from_the_caller_and_what_is_bound_elsewhere_is_a_service():
    @job("ship")
    async def ship(address: Address, number: int, note: str | None, names: list[str]) -> None: ...

    await Application("shop", modules=[TasksModule.configure(handlers=[ship])]).register()

    class Private(Provider):
        async def register(self, container):
            container.singleton(Address, Address("private"))

    @module(name="Depot", providers=[Private])
    class Depot(Module):
        pass

    error = await problems_of(Depot, TasksModule.configure(handlers=[ship]))
    assert "Address is not visible to TasksModule: Depot binds it but does not export it" in str(
        error
    )


async def test_a_step_of_a_saga_that_cannot_be_called_and_a_missing_compensation_are_reported():
    class Bad(AbstractSaga):
        def get_id(self):
            return "bad"

        @saga_step(compensation="give_bak")
        async def fly(self):
            pass

        @saga_step(compensation="check_out")
        async def sleep(self, nights):
            pass

        async def check_out(self, nights):
            pass

    error = await problems_of(WorkflowModule.stub(workflows=[Bad]))
    titles = [problem.title for problem in error.problems]
    name = Bad.__qualname__
    sleep = f"step 'sleep' of {name} is called without arguments"
    assert titles == [
        f"step 'fly' of {name}: there is no method 'give_bak'",
        f"{sleep}: missing a required argument: 'nights'",
        f"the compensation 'check_out' of {sleep}: missing a required argument: 'nights'",
    ]
    assert {problem.code for problem in error.problems} == {SagaDefinitionError.code}
    assert error.problems[1].lines == (
        f"tests/unit/app/{Path(__file__).name}:{Bad.sleep.__code__.co_firstlineno}",
    )


def plain(mailer: Mailer): ...


def generator(state):
    yield


async def made_late() -> Mailer:
    return SmtpMailer()


@pytest.mark.parametrize(
    ("function", "title"),
    [
        (plain, "plain is a plain function, but what it asks for needs await"),
        (generator, "generator is a generator: its scope would end before it runs"),
    ],
)
async def test_functions_that_cannot_be_entries_are_reported(function, title):
    class Late(Provider):
        async def register(self, container):
            container.scoped(Mailer, factory=made_late)
            container.check_entry(function, given=("state",), role="handler")

    error = await problems_of(providers=[Late])
    assert [problem.title for problem in error.problems] == [title]


FIXES = {
    "job": "list what asks for it in  TasksModule.scope(..., imports=[Mail]), or show it to all:  "
    "@module(..., is_global=True)  on Mail",
    "job of a feature": "import it:  imports=[Mail]  in Shop",
    "saga": "import it:  imports=[Mail]  in Shop",
    "node": "list what asks for it in  WorkflowModule.scope(..., imports=[Mail]), or show it to "
    "all:  @module(..., is_global=True)  on Mail",
    "step handler": "show it to all:  @module(..., is_global=True)  on Mail",
}


@pytest.mark.parametrize("kind", FIXES)
async def test_the_fix_for_a_configured_module_can_be_followed(kind):
    modules, _, _ = KINDS[kind]
    error = await problems_of(*modules(), Mail)
    (problem,) = error.problems
    assert problem.fix == FIXES[kind]
    shown = module(name="Mail", providers=[MailProvider], exports=[Mailer], is_global=True)
    everywhere = shown(type("Mail", (Module,), {}))
    await Application("shop", modules=[*modules(), everywhere]).register()


@pytest.mark.parametrize(
    ("library", "item"), [(TasksModule, send), (WorkflowModule, whole), (ScheduleModule, nightly)]
)
async def test_a_scope_with_imports_sees_their_exports(library, item):
    shop = feature(library.scope(item, imports=[Mail]))
    await Application("shop", modules=[library.configure(), shop]).register()


async def test_a_service_that_is_not_exported_is_exported_first():
    @module(name="Private", providers=[MailProvider])
    class Private(Module):
        pass

    error = await problems_of(Private, TasksModule.configure(handlers=[send]))
    assert error.problems[0].fix == (
        "export it:  exports=[Mailer]  in Private; then list what asks for it in  "
        "TasksModule.scope(..., imports=[Private]), or show it to all:  "
        "@module(..., is_global=True)  on Private"
    )


async def test_the_report_names_handler_place_module_parameter_and_fix():
    error = await problems_of(TasksModule.configure(handlers=[send]), Mail)
    line, bound = send.__code__.co_firstlineno, MailProvider.register.__code__.co_firstlineno + 1
    here = f"tests/unit/app/{Path(__file__).name}"
    assert error.problems[0].render() == (
        "[LEX_ERR_MOD_005] Mailer is not visible to TasksModule: Mail exports it, but TasksModule "
        "does not import Mail\n"
        f"    send(mailer)       {here}:{line}  job 'send' of TasksModule\n"
        "    └─ mailer: Mailer  ✗ not visible to TasksModule\n"
        f"    - Mailer  bound in Mail  {here}:{bound}  (singleton)\n"
        f"    fix: {FIXES['job']}"
    )
