"""Durable runs as a part of an application: what is bound, when a worker runs, and health."""

from typing import Protocol

import anyio.lowlevel
import pytest
from attrs import evolve
from tests.failures import block_the_loop

from lexigram.app import Application
from lexigram.contracts.cli import DoctorStatus
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.di.errors import ProviderError
from lexigram.leasing import Backoff
from lexigram.sql import SqlModule
from lexigram.testing import wait_until
from lexigram.workflow import WorkflowModule
from lexigram.workflow.cli.checks import check_definitions
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable import (
    LifeCycleEvent,
    LifecycleHandler,
    NewRun,
    RunPlan,
    StepPlan,
)
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.errors import DefinitionInvalidError
from lexigram.workflow.durable.fleet import DurableFleet, pools_of
from lexigram.workflow.durable.provider import DurableProvider
from lexigram.workflow.durable.worker import worker as worker_module

pytestmark = pytest.mark.anyio

PLAN = RunPlan(workflow_id="w", steps=[StepPlan(name="a", step_type="parse", handler="echo")])


class Shelf:
    """A service that handlers ask for by its type."""


async def echo(run_step, shelf: Shelf):
    return {"step": run_step.workflow_step_name, "shelf": type(shelf).__name__}


def app_of(*modules, **durable):
    from lexigram.di import Provider

    class ShelfProvider(Provider):
        async def register(self, container):
            container.singleton(Shelf)

    settings = WorkflowConfig(durable=DurableConfig(**durable))
    workflow = WorkflowModule.stub(settings, step_handlers={"echo": echo})
    return Application("fleet", modules=[*modules, workflow], providers=[ShelfProvider()])


async def health_of(app):
    result = await app.health_check()
    return next(part for part in result.components if part.component == "durable")


async def test_without_a_database_the_rest_works_and_the_advice_names_the_module():
    async with app_of() as app:
        fleet = app.container.get(DurableFleet)
        assert not fleet.is_usable
        assert (await health_of(app)).status is HealthStatus.HEALTHY
        with pytest.raises(ConfigurationError, match="SqlModule"):
            fleet.engine


async def test_a_worker_that_is_configured_without_a_database_stops_the_start():
    with pytest.raises(Exception, match="need a database"):
        async with app_of(run_worker=True):
            pass


async def test_a_worker_runs_only_where_it_is_asked_for():
    async with app_of(SqlModule.stub()) as app:
        assert app.container.get(DurableFleet).worker is None
        assert "no worker" in (await health_of(app)).message
    async with app_of(SqlModule.stub(), run_worker=True) as app:
        worker = app.container.get(DurableFleet).worker
        assert worker.is_alive
        assert dict(worker.config.consumers) == {"parse": 3, "store": 5, "*": 5}
        health = await health_of(app)
        assert health.status is HealthStatus.HEALTHY
        assert health.details["checkin_age"] < 60
    assert not worker.is_alive


async def test_without_background_work_or_where_a_command_says_so_there_is_no_worker():
    app = app_of(SqlModule.stub(), run_worker=True)
    app.background_enabled = False
    async with app:
        assert app.container.get(DurableFleet).worker is None
    app = app_of(SqlModule.stub(), run_worker=True)
    for provider in app.providers:
        provider.run_worker = False
    async with app:
        assert app.container.get(DurableFleet).worker is None


async def test_handlers_get_services_of_the_application_by_their_type():
    async with app_of(SqlModule.stub(), run_worker=True) as app:
        engine = app.container.get(DurableFleet).engine
        group = await engine.submit(PLAN, [NewRun()])

        async def ended():
            return (await engine.stats(group.group_id)).group_status is RunStatus.COMPLETED

        await wait_until(ended)
        [step] = await engine.steps(group.runs[0])
        assert step.status_meta == {"step": "a", "shelf": "Shelf"}


async def test_a_dead_worker_makes_the_application_unhealthy():
    async with app_of(SqlModule.stub(), run_worker=True) as app:
        worker = app.container.get(DurableProvider).worker
        await worker.stop(0.0)
        health = await health_of(app)
        assert health.status is HealthStatus.UNHEALTHY
        assert "dead" in health.message


async def test_a_task_of_the_worker_that_failed_degrades_health_for_a_while(monkeypatch):
    monkeypatch.setattr(worker_module, "RESTART", Backoff(first=0.01, cap=0.01))
    async with app_of(SqlModule.stub(), run_worker=True) as app:
        worker = app.container.get(DurableProvider).worker
        claims = []

        async def fail_once(pool, free):
            claims.append(pool)
            if len(claims) == 1:
                raise RuntimeError("a defect")
            return 0

        monkeypatch.setattr(worker._pools, "_claim", fail_once)
        await wait_until(lambda: worker.failed_tasks)
        health = await health_of(app)
        assert health.status is HealthStatus.DEGRADED
        assert "RuntimeError: a defect" in health.message
        assert worker.is_alive


async def test_a_handler_that_no_live_worker_has_degrades_health_until_one_has_it():
    async with app_of(SqlModule.stub()) as app:
        fleet = app.container.get(DurableFleet)
        absent = StepPlan(name="a", step_type="parse", handler="shop.absent")
        await fleet.engine.submit(RunPlan(workflow_id="w", steps=[absent]), [NewRun()])
        [kind] = await fleet.engine.store.kinds()
        await fleet.engine.store.heartbeat("w", (), [kind.id])
        health = await health_of(app)
        assert health.status is HealthStatus.DEGRADED
        assert health.message == "no worker for handler shop.absent (pool parse)"
        assert health.details["missing_handlers"] == [health.message]
        await fleet.engine.store.heartbeat("w")
        assert (await health_of(app)).status is HealthStatus.HEALTHY


async def test_a_lifecycle_handler_that_no_live_worker_has_degrades_health_until_one_has_it():
    async with app_of(SqlModule.stub()) as app:
        engine = app.container.get(DurableFleet).engine
        notify = LifecycleHandler(name="notify", handler="shop.notify")
        plan = evolve(PLAN, lifecycle={LifeCycleEvent.GROUP_END: [notify]})
        await engine.submit(plan, [NewRun()])
        step = await engine.claim_next_step("w", "L")
        assert await engine.complete_step(step.id, "L")
        await engine.store.heartbeat("w", lacks_handlers=["shop.notify"])
        health = await health_of(app)
        assert health.status is HealthStatus.DEGRADED
        assert health.message == "no worker for handler shop.notify (event group_end)"
        assert health.details["missing_handlers"] == [health.message]
        await engine.store.heartbeat("other")
        assert (await health_of(app)).status is HealthStatus.HEALTHY


async def test_a_handler_that_blocked_the_loop_degrades_health_for_a_while():
    settings = {"run_worker": True, "checkin_timeout": 0.4, "checkin_interval": 0.1}
    async with app_of(SqlModule.stub(), **settings) as app:
        worker = app.container.get(DurableProvider).worker
        block_the_loop(1.2)
        await wait_until(lambda: worker.blocked is not None)
        health = await health_of(app)
        assert health.status is HealthStatus.DEGRADED
        assert "a handler blocked the event loop" in health.message


async def test_working_runs_a_worker_for_a_block():
    async with app_of(SqlModule.stub()) as app:
        fleet = app.container.get(DurableFleet)
        async with fleet.working({"*": 1}) as worker:
            assert worker.is_alive
            await anyio.lowlevel.checkpoint()
        assert not worker.is_alive


# --- definitions of an operator ---

HERE = __name__
YAML = """\
id: {id}
name: {id}
item_steps:
  one: {{method: {method}}}
lifecycle_events:
  group_end:
    - {{name: verdict, method: echo}}
"""


class Archive(Protocol):
    def put(self, text: str) -> None: ...


async def keep(run_step, archive: Archive):
    """A handler that definitions name by its path."""


@pytest.fixture
def define(tmp_path):
    def write(**methods):
        for name, method in methods.items():
            (tmp_path / f"{name}.yaml").write_text(YAML.format(id=name, method=method))
        return {"workflow_dir": str(tmp_path), "run_worker": True, "param_dir": str(tmp_path / "p")}

    return write


async def judged(app):
    """What doctor says about the definitions."""
    await app.register()
    return await check_definitions(app)


async def test_a_service_that_a_handler_of_a_definition_lacks_stops_the_worker_and_is_an_error(
    define, tmp_path
):
    settings = define(good="echo", bad=f"{HERE}.keep")
    with pytest.raises(ProviderError) as caught:
        await app_of(SqlModule.stub(), **settings).start()
    assert isinstance(caught.value.__cause__, DefinitionInvalidError)
    (problem,) = caught.value.__cause__.problems
    assert problem.source.startswith(f"{tmp_path}/bad.yaml:4")
    assert problem.key == "item_steps.one.method"
    line = keep.__code__.co_firstlineno
    for text in ("nothing provides Archive", "keep(archive)", f"{__file__.split('/')[-1]}:{line}"):
        assert text in problem.message
    assert "fix: bind it:  container.singleton(Archive, ...)  in a provider" in problem.message
    verdict = await judged(app_of(SqlModule.stub(), **settings))
    assert (verdict.status, verdict.message) == (DoctorStatus.ERROR, str(problem))


async def test_a_handler_that_is_not_in_this_process_is_a_warning_and_the_worker_does_the_rest(
    define,
):
    settings = define(good="echo", elsewhere="no_such_module.work", unknown="nobody")
    async with app_of(SqlModule.stub(), **settings) as app:
        fleet = app.container.get(DurableFleet)
        known = {one.id for one in await fleet.definitions.list()}
        assert {"elsewhere", "good", "unknown"} <= known
        plan = await fleet.definitions.plan("good")
        submitted = await fleet.engine.submit(plan, [NewRun()])

        async def done():
            return (await fleet.engine.run(submitted.runs[0])).status is RunStatus.COMPLETED

        await wait_until(done)
        with pytest.raises(DefinitionInvalidError, match="no module 'no_such_module'"):
            await fleet.definitions.plan("elsewhere")
    verdict = await judged(app_of(SqlModule.stub(), **settings))
    assert verdict.status is DoctorStatus.WARNING
    assert "there is no module 'no_such_module'" in verdict.message
    assert "no handler 'nobody' is registered" in verdict.message


async def test_definitions_whose_handlers_have_what_they_need_are_told_so(define):
    verdict = await judged(app_of(**define(good="echo")))
    assert verdict.status is DoctorStatus.OK
    assert verdict.message.endswith("workflows, their handlers have what they need")
    assert "no folders" in (await judged(app_of(workflow_dir="nowhere"))).message
    assert "no WorkflowModule" in (await judged(Application("bare"))).message


def test_pools_are_read_as_the_command_line_has_them():
    assert pools_of("parse=8, store=4,*=2") == {"parse": 8, "store": 4, "*": 2}
    for text in (
        *("", "parse", "parse=0", "parse=many", "=3", "a=1,a=2"),
        *("a=10001", f"a={'9' * 5000}", "a=000"),
    ):
        with pytest.raises(ValueError):
            pools_of(text)
