"""``lexigram workflow``: the workflows of an application and their runs; durable ones beside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import asdict

from lexigram.cli.errors import CliError
from lexigram.cli.session import Session, session_of
from lexigram.config.escape import escape_line, indent_lines
from lexigram.contracts.core.result import Err
from lexigram.workflow.cli.values import Argument, Input, parsed, value_of
from lexigram.workflow.errors import HumanInputRequiredError
from lexigram.workflow.execution.history import ExecutionHistory
from lexigram.workflow.pipeline.context import PipelineContext
from lexigram.workflow.types import GraphResult
from lexigram.workflow.workflows import WorkflowRunInfo, Workflows

Name = Annotated[str, typer.Argument(metavar="NAME", help="The workflow.")]
RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run.")]
MaybeRunId = Annotated[str | None, typer.Argument(metavar="[RUN_ID]", help="The run.")]
PausedGroup = Annotated[
    int | None, typer.Option("--group", metavar="GROUP", help="A paused group of durable runs.")
]
PausedRun = Annotated[
    int | None, typer.Option("--run", metavar="RUN", help="A paused durable run.")
]
NewId = Annotated[str | None, typer.Option("--run-id", help="The id of the run; default: new.")]
Status = Annotated[
    str | None,
    typer.Option("--status", help="running, paused, completed, failed or cancelled only."),
]
OfName = Annotated[str | None, typer.Option("--name", help="Of this workflow only.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many.")]
Output = Annotated[
    Path | None, typer.Option("--output", help="Write it to this file; .dot is for Graphviz.")
]
Dot = Annotated[bool, typer.Option("--dot", help="For Graphviz instead of mermaid.")]
OfRun = Annotated[str | None, typer.Option("--run", help="Coloured by how this run stands.")]
Response = Annotated[
    str | None,
    typer.Option("--response", metavar="TEXT", help="The answer; JSON where it is JSON."),
]
SagaName = Annotated[
    str | None, typer.Option("--name", help="The saga; give --arg too. Others are known by id.")
]


def create_workflow_app() -> typer.Typer:
    """The command group."""
    from lexigram.workflow.cli.durable import add_to

    app = typer.Typer(help="List, run, look at and resume workflows.")
    for command in (ls, run, status, history, graph, resume):
        app.command()(command)
    add_to(app)
    return app


def ls(ctx: typer.Context) -> None:
    """Every workflow: its kind, its steps, and the event that starts it."""

    async def work(workflows: Workflows) -> list[dict[str, Any]]:
        return [asdict(definition) for definition in workflows.definitions()]

    rows = _run_with_workflows(ctx, work)
    session_of(ctx).output.table("workflows", rows, ("name", "kind", "version", "steps", "on"))


def run(
    ctx: typer.Context,
    name: Name,
    given: Input = None,
    argument: Argument = None,
    run_id: NewId = None,
) -> None:
    """Run a workflow here, to its end or to a pause."""
    value = value_of(given, argument)

    async def work(workflows: Workflows) -> dict[str, Any]:
        known = run_id or await workflows.saga_id(name, value)
        return await _report_end(workflows.run(name, value, run_id=run_id), known)

    _show(session_of(ctx), name, _run_with_workflows(ctx, work))


def status(ctx: typer.Context, run_id: RunId) -> None:
    """How a run stands, and each of its steps."""

    async def work(workflows: Workflows) -> dict[str, Any]:
        return _describe(await workflows.status(run_id))

    facts = _run_with_workflows(ctx, work)
    shown = {key: value for key, value in facts.items() if key != "steps" and value}
    steps = "".join(f"\n{escape_line(f'{name}: {how}')}" for name, how in facts["steps"].items())
    session_of(ctx).output.facts({**shown, "steps": steps}, facts)


def history(
    ctx: typer.Context, name: OfName = None, status: Status = None, limit: Limit = 20
) -> None:
    """Runs of pipelines and graphs, the latest change first."""

    async def work(workflows: Workflows) -> list[dict[str, Any]]:
        try:
            runs = await workflows.history(name, status=status, limit=limit)
        except ValueError as error:
            raise CliError(str(error), hint="see --help for the states of a run") from error
        return [_describe(info) for info in runs]

    columns = ("run_id", "workflow", "kind", "status", "updated", "error")
    session_of(ctx).output.table("runs", _run_with_workflows(ctx, work), columns)


def graph(
    ctx: typer.Context,
    name: Name,
    output: Output = None,
    dot: Dot = False,
    run_id: OfRun = None,
) -> None:
    """Print a workflow as a diagram: mermaid, or DOT for Graphviz."""
    as_dot = dot or (output is not None and output.suffix in {".dot", ".gv"})

    async def work(workflows: Workflows) -> str:
        return await workflows.diagram(name, dot=as_dot, run_id=run_id)

    text = _run_with_workflows(ctx, work)
    facts = {"workflow": name, "format": "dot" if as_dot else "mermaid", "text": text}
    if output is None:
        session_of(ctx).output.text(text, facts)
        return
    output.write_text(text, encoding="utf-8")
    session_of(ctx).output.text(str(output), {**facts, "file": str(output)})


def resume(
    ctx: typer.Context,
    run_id: MaybeRunId = None,
    response: Response = None,
    name: SagaName = None,
    argument: Argument = None,
    group: PausedGroup = None,
    run: PausedRun = None,
) -> None:
    """Answer a paused run, or go on with one that failed or whose process is gone.

    --group and --run let durable runs go on that were paused.
    """
    if group is not None or run is not None:
        from lexigram.workflow.cli.durable import resume_durable

        if run_id is not None:
            raise CliError(f"{run_id} is no durable run", hint="leave it out, or leave out --group")
        resume_durable(ctx, group, run)
        return
    if run_id is None:
        raise CliError("say which run", hint="RUN_ID; or --group or --run for durable ones")

    async def work(workflows: Workflows) -> dict[str, Any]:
        answer = () if response is None else (parsed(response, "RESPONSE"),)
        given = value_of(None, argument)
        return await _report_end(workflows.resume(run_id, *answer, name=name, input=given), run_id)

    _show(session_of(ctx), run_id, _run_with_workflows(ctx, work))


# --- how ---


def _run_with_workflows(ctx: typer.Context, work: Callable[[Workflows], Awaitable[Any]]) -> Any:
    """Start the application, do the work, stop it."""
    from lexigram.workflow.di.provider import WorkflowProvider

    session = session_of(ctx)
    if not any(isinstance(item, WorkflowProvider) for item in session.application.providers):
        raise CliError(
            f"{session.application.name} has no workflows",
            hint="add WorkflowModule.configure(workflows=[...]) to its modules",
        )

    async def call(workflows: Workflows) -> Any:
        return await work(workflows)

    call.__annotations__ = {"workflows": Workflows}  # read by the container at run time
    return session.run(call)


async def _report_end(going: Awaitable[Any], run_id: str | None) -> dict[str, Any]:
    """How a run ended, as data; a failure is raised."""
    try:
        outcome = await going
    except HumanInputRequiredError as pause:
        return {
            "run_id": pause.run_id,
            "status": "paused",
            "prompt": pause.prompt,
            "node": pause.node,
        }
    if isinstance(outcome, Err):
        error: Any = outcome.error  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - of any workflow
        raise error
    ended: Any = outcome.value
    if isinstance(ended, PipelineContext | GraphResult):
        return {
            "run_id": ended.run_id,
            "status": "completed",
            "output": ended.output,
            "history": ExecutionHistory(ended).as_dict(),
        }
    return {"run_id": run_id, "status": "completed", "output": ended, "history": None}


def _show(session: Session, what: str, facts: dict[str, Any]) -> None:
    if facts["status"] == "paused":
        text = (
            f"{what} waits: {indent_lines(str(facts['prompt']))}\n"
            f"answer with: lexigram workflow resume {facts['run_id']} --response TEXT"
        )
    else:
        text = f"{what} completed"
        if facts["output"] is not None:
            text += f": {indent_lines(str(facts['output']))}"
        if facts["run_id"]:
            text += f"\nrun {facts['run_id']}"
    session.output.text(text, facts)


def _describe(info: WorkflowRunInfo) -> dict[str, Any]:
    return {
        "run_id": info.run_id,
        "workflow": info.workflow,
        "kind": info.kind,
        "status": info.status,
        "version": info.version,
        "created": _moment(info.created_at),
        "updated": _moment(info.updated_at),
        "error": info.error,
        "steps": dict(info.steps),
    }


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
