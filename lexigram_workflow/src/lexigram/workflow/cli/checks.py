"""Whether orchestration works here: a pipeline in a graph is run, handlers are looked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio

from lexigram.contracts.cli import DoctorResult, DoctorStatus
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.core.result import Err
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.workflow.graph.builder import WorkflowBuilder
from lexigram.workflow.pipeline.context import PipelineContext
from lexigram.workflow.pipeline.pipeline import Pipeline
from lexigram.workflow.pipeline.steps import FunctionStep

if TYPE_CHECKING:
    from lexigram.app import Application
    from lexigram.sql import Database


async def check_definitions(application: Application) -> DoctorResult:
    """An ERROR for what a worker here would refuse; a WARNING for handlers that it has not."""
    from lexigram.workflow.durable._assembly import definitions_of
    from lexigram.workflow.durable.config import DurableConfig
    from lexigram.workflow.durable.errors import DefinitionInvalidError
    from lexigram.workflow.durable.provider import DurableProvider, has_definitions

    container = application.container
    if not container.sees(DurableProvider):
        return DoctorResult(DoctorStatus.OK, "the application has no WorkflowModule")
    provider, settings = container.get(DurableProvider), container.get(DurableConfig)
    if not await has_definitions(settings):
        return DoctorResult(DoctorStatus.OK, "there are no folders of definitions")
    services = container.of_node(container.find(DurableProvider).module)
    definitions = definitions_of(settings, provider.step_handlers, services)
    try:
        await definitions.load()
    except DefinitionInvalidError as error:
        found = [str(problem) for problem in error.problems]
        details = {"problems": found}
        return DoctorResult(DoctorStatus.ERROR, "\n".join(found), error.hint, details)
    if absent := [str(problem) for problem in definitions.absent]:
        return DoctorResult(
            DoctorStatus.WARNING,
            "\n".join(absent),
            "install them here, or leave these steps to workers that have them",
            {"absent": absent},
        )
    count = len(await definitions.list())
    return DoctorResult(DoctorStatus.OK, f"{count} workflows, their handlers have what they need")


async def check_handlers(application: Application) -> DoctorResult:
    """A WARNING for handlers that durable runs wait for and no live worker has; reads only."""
    from lexigram.sql import Database
    from lexigram.workflow.durable.engine import DurableEngine
    from lexigram.workflow.durable.errors import DurableError

    if not application.container.sees(Database):
        return DoctorResult(DoctorStatus.OK, "no database: there are no durable runs")
    database = application.container.get(Database)
    if not await _is_there(database):
        return DoctorResult(DoctorStatus.OK, f"{database.address} is not there yet")
    try:
        async with database:
            unserved = await DurableEngine(database).unserved()
    except (DurableError, DatabaseError) as error:
        return DoctorResult(
            DoctorStatus.WARNING,
            f"durable runs cannot be looked at: {error.message}",
            error.hint or "lexigram db upgrade makes the tables",
        )
    if not unserved:
        return DoctorResult(DoctorStatus.OK, "every handler that runs wait for has a worker")
    problems = [str(one) for one in unserved]
    return DoctorResult(
        DoctorStatus.WARNING,
        "; ".join(problems),
        "start a worker that has it, with a pool for its steps; or cancel runs that wait at them",
        {"missing": problems},
    )


async def _is_there(database: Database) -> bool:
    """False for a file that opening would make, and for a database in memory."""
    from lexigram.sql.url import file_of, parse_url

    if database.dialect != "sqlite":
        return True
    file = file_of(parse_url(database.config.url))
    return file is not None and await anyio.Path(file).exists()


async def check_workflow_engine() -> HealthCheckResult:
    """HEALTHY when a graph with a pipeline in it comes to the right end."""
    pipeline = Pipeline("check", [FunctionStep("double", _double)])
    engine = (
        WorkflowBuilder("check")
        .add_node("pipeline", pipeline, output_key="doubled")
        .add_node("end", _end)
        .add_edge("pipeline", "end")
        .set_entry("pipeline")
        .set_terminal("end")
        .build()
    )
    outcome = await engine.execute(3)
    problem = str(outcome.error) if isinstance(outcome, Err) else None
    if problem is None and not isinstance(outcome, Err) and outcome.value.output != 7:
        problem = f"a graph gave {outcome.value.output!r} instead of 7"
    return HealthCheckResult(
        component="workflow_engine_status",
        status=HealthStatus.UNHEALTHY if problem else HealthStatus.HEALTHY,
        message=problem or "a graph with a pipeline in it ran",
        error=problem,
    )


def _double(context: PipelineContext) -> int:
    return 2 * int(context.metadata["input"])


def _end(state: Mapping[str, Any]) -> int:
    return int(state["doubled"]) + 1
