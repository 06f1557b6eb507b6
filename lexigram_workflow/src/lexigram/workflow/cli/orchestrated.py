"""``lexigram workflow submit``, ``show``, ``questions`` and ``answer``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.session import session_of
from lexigram.config.escape import escape_line, indent_lines
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.contracts.workflow.limits import check_id, check_name
from lexigram.workflow.cli.durable import (
    Delay,
    Here,
    Key,
    Limit,
    Offset,
    OfGroup,
    Priority,
    Tenant,
    asked,
)
from lexigram.workflow.cli.limits import bounded
from lexigram.workflow.cli.values import Argument, Input, parsed, value_of
from lexigram.workflow.durable.fleet import DurableFleet

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        callback=bounded(check_name),
        help="A pipeline, graph or saga of the application.",
    ),
]
Run = Annotated[
    int, typer.Argument(metavar="RUN", callback=bounded(check_id), help="The number of the run.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Follow it to its end, or to a question.")]
Value = Annotated[str, typer.Argument(metavar="ANSWER", help="JSON where it is JSON, else text.")]
Step = Annotated[
    str | None,
    typer.Option("--step", callback=bounded(check_name), help="Which of several questions."),
]


def submit(
    ctx: typer.Context,
    name: Name,
    given: Input = None,
    argument: Argument = None,
    priority: Priority = 0,
    tenant: Tenant = None,
    delay: Delay = 0.0,
    key: Key = None,
    wait: Wait = False,
    here: Here = False,
) -> None:
    """Hand a pipeline, graph or saga to the fleet; with --wait exit code 1 when it fails."""
    value = value_of(given, argument)

    async def work(fleet: DurableFleet) -> dict[str, Any]:
        runs = fleet.orchestrated
        run_id = await runs.submit(
            name, value, priority=priority, tenant=tenant, delay=delay, idempotency_key=key
        )
        if not (wait or here):
            return await _describe(fleet, run_id)
        async with fleet.working() if here else nullcontext():
            await runs.ended(run_id, or_asks=True)
        return await _describe(fleet, run_id)

    session = session_of(ctx)
    facts = asked(ctx, work)
    session.output.text(_render(facts), facts)
    if (wait or here) and facts["status"] in (RunStatus.FAILED, RunStatus.CANCELLED):
        raise typer.Exit(ExitCode.FAILURE)


def show(ctx: typer.Context, run: Run) -> None:
    """How a pipeline, graph or saga stands: what is done, what it asks, its state."""

    async def work(fleet: DurableFleet) -> dict[str, Any]:
        return await _describe(fleet, run)

    facts = asked(ctx, work)
    lines = [_render(facts)]
    lines += [f"{key}: {', '.join(facts[key])}" for key in ("done", "at_work") if facts[key]]
    lines += [escape_line(f"  {key} = {value}") for key, value in facts["state"].items()]
    session_of(ctx).output.text("\n".join(lines), facts)


def questions(
    ctx: typer.Context, group: OfGroup = None, limit: Limit = 50, offset: Offset = 0
) -> None:
    """What runs wait for; answer with `lexigram workflow answer RUN ANSWER`."""

    async def work(fleet: DurableFleet) -> Any:
        from lexigram.workflow.durable._listing import describe_question

        found = await fleet.questions.open(group_id=group, limit=limit, offset=offset)
        return [describe_question(one) for one in found]

    columns = ("run_id", "run_group_id", "workflow_definition_id", "step", "prompt", "asked_date")
    session_of(ctx).output.table("questions", asked(ctx, work), columns)


def answer(ctx: typer.Context, run: Run, value: Value, step: Step = None) -> None:
    """Answer what a run, or a run that it made, asked; then any worker goes on with it."""

    async def work(fleet: DurableFleet) -> dict[str, Any]:
        from lexigram.workflow.durable._listing import describe_question

        return describe_question(
            await fleet.questions.answer(run, parsed(value, "ANSWER"), step=step)
        )

    facts = asked(ctx, work)
    text = f"run {facts['run_id']}: {facts['step']} has its answer"
    session_of(ctx).output.text(text, facts)


async def _describe(fleet: DurableFleet, run_id: int) -> dict[str, Any]:
    from lexigram.workflow.durable._listing import describe_orchestration

    return describe_orchestration(await fleet.orchestrated.status(run_id))


def _render(facts: Mapping[str, Any]) -> str:
    lines = [f"run {facts['run_id']} of {facts['name']}: {facts['status']}"]
    if facts["error"]:
        lines.append(f"it failed: {facts['error']}")
    for one in facts["questions"]:
        lines.append(f"{one['step']} asks: {one['prompt']}")
        lines.append(f"answer with: lexigram workflow answer {one['run_id']} ANSWER")
    return "\n".join(map(indent_lines, lines))
