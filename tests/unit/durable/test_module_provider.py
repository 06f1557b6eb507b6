"""Durable runs as a part of an application: what is bound, when a worker runs, and health."""

import anyio.lowlevel
import pytest

from lexigram.app import Application
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.sql import SqlModule
from lexigram.testing import wait_until
from lexigram.workflow import WorkflowModule
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable import NewRun, RunPlan, StepPlan
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.fleet import DurableFleet, pools_of
from lexigram.workflow.durable.provider import DurableProvider

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


async def test_what_only_looks_or_is_told_so_runs_no_worker():
    app = app_of(SqlModule.stub(), run_worker=True)
    app.only_look()
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


async def test_working_runs_a_worker_for_a_block():
    async with app_of(SqlModule.stub()) as app:
        fleet = app.container.get(DurableFleet)
        async with fleet.working({"*": 1}) as worker:
            assert worker.is_alive
            await anyio.lowlevel.checkpoint()
        assert not worker.is_alive


def test_pools_are_read_as_the_command_line_has_them():
    assert pools_of("parse=8, store=4,*=2") == {"parse": 8, "store": 4, "*": 2}
    for text in ("", "parse", "parse=0", "parse=many", "=3", "a=1,a=2"):
        with pytest.raises(ValueError):
            pools_of(text)
