"""The part of ``lexigram workflow`` that is about durable runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from lexigram.cli.errors import CliError
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.session import Session, session_of
from lexigram.contracts.workflow.durable import RunDocument, RunGroupStats, RunStatus
from lexigram.contracts.workflow.limits import (
    MAX_ID,
    MAX_PER_REQUEST,
    MAX_PRIORITY,
    MIN_PRIORITY,
    check_id,
    check_name,
    check_seconds,
    check_text,
)
from lexigram.workflow.cli.limits import bounded
from lexigram.workflow.cli.values import parsed
from lexigram.workflow.durable.errors import DefinitionInvalidError
from lexigram.workflow.durable.fleet import DurableFleet

GroupId = Annotated[
    int,
    typer.Argument(metavar="GROUP", callback=bounded(check_id), help="The number of the group."),
]
MaybeGroup = Annotated[
    int | None,
    typer.Argument(metavar="[GROUP]", callback=bounded(check_id), help="The number of the group."),
]
OneRun = Annotated[
    int | None,
    typer.Option("--run", metavar="RUN", callback=bounded(check_id), help="One run instead."),
]
OfGroup = Annotated[
    int | None,
    typer.Option("--group", "-g", callback=bounded(check_id), help="Of this group only."),
]
OfBatch = Annotated[
    int | None, typer.Option("--batch", callback=bounded(check_id), help="Of this batch only.")
]
Status = Annotated[
    str | None,
    typer.Option("--status", help="PENDING, RUNNING, ERROR, COMPLETED, FAILED or CANCELLED only."),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=MAX_PER_REQUEST, help="How many.")]
Offset = Annotated[int, typer.Option("--offset", min=0, max=MAX_ID, help="How many to leave out.")]
Priority = Annotated[int, typer.Option(min=MIN_PRIORITY, max=MAX_PRIORITY, help="More is sooner.")]
Tenant = Annotated[
    str | None,
    typer.Option(
        callback=bounded(check_name),
        help="Whose it is; those of all tenants stand in one fair line.",
    ),
]
Delay = Annotated[
    float,
    typer.Option(
        "--delay", metavar="SECONDS", callback=bounded(check_seconds), help="Before it may begin."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key", callback=bounded(check_name), help="A second call with this key finds the first."
    ),
]
Here = Annotated[bool, typer.Option("--here", help="Work on it in this process too.")]
_DAY = 24 * 3600.0
_QUESTIONS = 20  # shown at most while a group is followed
_LOOK = 1.0  # poll interval for them, in seconds
_FAILURES = 5  # shown at most when a group has ended
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Documents, or folders.")]


def _check_days(field: str, days: object) -> None:
    check_seconds(field, days)
    check_seconds(field, cast("float", days) * _DAY)


def add_to(app: typer.Typer) -> None:
    """Add the commands to the group ``workflow``."""
    from lexigram.workflow.cli.orchestrated import answer, questions, show, submit

    for command in (
        *(definitions, params, start, groups, runs, steps, stats, watch),
        *(retry, cancel, pause, locks, unlock, workers, prune, validate),
        *(submit, show, questions, answer),
    ):
        app.command()(command)


# --- what there is -------------------------------------------------------------------------------


def definitions(
    ctx: typer.Context,
    workflow_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", callback=bounded(check_name), help="One of them, with its steps."
        ),
    ] = None,
) -> None:
    """Workflow definitions for durable runs; with an id, its steps."""

    async def work(fleet: DurableFleet) -> Any:
        if workflow_id is None:
            return [_describe_definition(item) for item in await fleet.definitions.list()]
        return _describe_definition(await fleet.definitions.get(workflow_id))

    found = asked(ctx, work)
    output = session_of(ctx).output
    if workflow_id is None:
        output.table("definitions", found, ("id", "name", "steps", "source", "origin"))
        return
    rows = found["item_steps"]
    if output.json:
        output.text("", found)
    else:
        output.table("steps", rows, ("key", "type", "name", "method", "retries", "resource_key"))


def params(
    ctx: typer.Context,
    param_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", callback=bounded(check_name), help="One of them, with its values."
        ),
    ] = None,
) -> None:
    """Parameter sets; with an id, its values."""

    async def work(fleet: DurableFleet) -> Any:
        if param_id is None:
            return [_parameters(item) for item in await fleet.definitions.list_params()]
        return _parameters(await fleet.definitions.params(param_id))

    found = asked(ctx, work)
    output = session_of(ctx).output
    if param_id is None:
        output.table("params", found, ("id", "name", "steps", "source", "origin"))
        return
    rows = [
        {"step": step, "parameter": name, "value": value}
        for step, values in found["config"].items()
        for name, value in values.items()
    ]
    if output.json:
        output.text("", found)
    else:
        output.table("parameters", rows, ("step", "parameter", "value"))


def validate(
    ctx: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML files.")],
    upload: Annotated[
        bool, typer.Option("--upload", help="As an upload: handlers by the allow-list only.")
    ] = False,
) -> None:
    """Check definitions and parameter sets: every problem with file, line and fix."""

    async def work(fleet: DurableFleet) -> list[dict[str, Any]]:
        return [await _validate(fleet, path, upload=upload) for path in files]

    found = asked(ctx, work)
    output = session_of(ctx).output
    if output.json:
        output.text("", {"files": found})
    for item in found if not output.json else ():
        output.note(f"{item['file']}: {'fine' if item['is_valid'] else 'wrong'}")
        for problem in item["problems"]:
            output.warn(problem)
    if not all(item["is_valid"] for item in found):
        raise typer.Exit(ExitCode.FAILURE)


# --- to start and follow -------------------------------------------------------------------------


def start(
    ctx: typer.Context,
    files: Files,
    workflow_id: Annotated[
        str | None,
        typer.Option(
            "--workflow", "-w", callback=bounded(check_name), help="Default: as configured."
        ),
    ] = None,
    param_id: Annotated[
        str | None,
        typer.Option(
            "--params", "-p", callback=bounded(check_name), help="Default: as configured."
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="STEP.NAME=VALUE", help="Over the set; JSON where it is."),
    ] = None,
    source: Annotated[
        str, typer.Option(callback=bounded(check_name), help="Who the documents come from.")
    ] = "cli",
    name: Annotated[
        str | None, typer.Option(callback=bounded(check_name), help="Of the group.")
    ] = None,
    priority: Priority = 0,
    tenant: Tenant = None,
    delay: Delay = 0.0,
    key: Key = None,
    force: Annotated[
        bool, typer.Option("--force", help="Do steps although what they make is there.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end.")] = False,
    here: Here = False,
) -> None:
    """Start a run for each document; --wait follows them, exit code 1 unless all completed."""
    documents = [RunDocument(uri=path, source=source) for path in _documents(files)]
    overrides = _overrides(override or [])
    session = session_of(ctx)

    async def work(fleet: DurableFleet) -> dict[str, Any]:
        group = await fleet.runs.submit(
            documents,
            workflow_id=workflow_id,
            param_id=param_id,
            overrides=overrides,
            name=name,
            priority=priority,
            tenant_id=tenant,
            delay=delay,
            idempotency_key=key,
            force=force,
        )
        if wait or here:
            return await _follow(session, fleet, group, here=here)
        return {"group": group, **(await fleet.engine.stats(group)).to_dict()}

    facts = asked(ctx, work)
    if not (wait or here):
        session.output.text(f"group {facts['group']}: {facts['total_runs']} runs", facts)
        return
    _report_end(session, facts)


def watch(ctx: typer.Context, group: GroupId, here: Here = False) -> None:
    """Follow a group to its end; exit code 1 unless all its runs completed."""
    session = session_of(ctx)

    async def work(fleet: DurableFleet) -> dict[str, Any]:
        await fleet.engine.stats(group)  # refuses a group that is not there
        return await _follow(session, fleet, group, here=here)

    _report_end(session, asked(ctx, work))


def stats(ctx: typer.Context, group: GroupId) -> None:
    """How far a group is, and how long its steps take."""

    async def work(fleet: DurableFleet) -> dict[str, Any]:
        statistics = (await fleet.engine.stats(group)).to_dict()
        return {"group": group, **statistics, "steps": await fleet.overview.step_stats(group)}

    facts = asked(ctx, work)
    output = session_of(ctx).output
    if output.json:
        output.text("", facts)
        return
    shown = {key: value for key, value in facts.items() if key not in ("steps", "problems")}
    output.facts(shown, facts)
    for problem in facts.get("problems", ()):
        output.warn(problem)
    rows = [
        {**step, **{name: _short(step[name]) for name in ("average_duration", "longest")}}
        for step in facts["steps"]
    ]
    columns = ("step", "step_type", "status", "attempts", "average_duration", "longest")
    if rows:
        output.table("steps", rows, columns)


# --- lists ---------------------------------------------------------------------------------------


def groups(
    ctx: typer.Context,
    status: Status = None,
    batch: OfBatch = None,
    limit: Limit = 20,
    offset: Offset = 0,
) -> None:
    """Groups of runs, the newest first."""
    wanted = _status(status)

    async def work(fleet: DurableFleet) -> Any:
        return await fleet.overview.groups(
            batch_id=batch, status=wanted, limit=limit, offset=offset
        )

    page = asked(ctx, work)
    columns = (
        "id",
        "name",
        "workflow_definition_id",
        "status",
        "total_runs",
        "remaining",
        "failed",
    )
    session_of(ctx).output.table("groups", page.items, (*columns, "created_date"), total=page.total)


def runs(
    ctx: typer.Context,
    group: OfGroup = None,
    batch: OfBatch = None,
    status: Status = None,
    limit: Limit = 20,
    offset: Offset = 0,
) -> None:
    """Runs, the newest first."""
    wanted = _status(status)

    async def work(fleet: DurableFleet) -> Any:
        return await fleet.overview.runs(
            group_id=group, batch_id=batch, status=wanted, limit=limit, offset=offset
        )

    page = asked(ctx, work)
    rows = [{**item, "at": f"{item['step']}/{item['steps_total']}"} for item in page.items]
    columns = ("id", "run_group_id", "status", "state", "at", "asks", "doc_id", "status_message")
    session_of(ctx).output.table("runs", rows, columns, total=page.total)


def steps(
    ctx: typer.Context,
    run: Annotated[
        int | None,
        typer.Argument(metavar="[RUN]", callback=bounded(check_id), help="Of this run only."),
    ] = None,
    group: OfGroup = None,
    status: Status = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> None:
    """Steps of a run, or of all runs; those not reached yet included."""
    wanted = _status(status)

    async def work(fleet: DurableFleet) -> Any:
        if run is None:
            return await fleet.overview.steps(
                status=wanted, group_id=group, limit=limit, offset=offset
            )
        found = (await fleet.overview.run(run))["steps"]
        return [step for step in found if wanted is None or step["status"] == wanted.value]

    columns = ("workflow_run_id", "workflow_step_number", "workflow_step_name", "step_type")
    rest = ("status", "retry", "retries", "worker_id", "status_message")
    session_of(ctx).output.table("steps", asked(ctx, work), (*columns, *rest))


def locks(ctx: typer.Context) -> None:
    """Locked resources and their owners: a worker, this command line, the web, a handler."""

    async def work(fleet: DurableFleet) -> Any:
        return await fleet.overview.locks()

    columns = ("resource_key", "holder_kind", "holder_id", "step_id", "acquired_at", "expires_at")
    session_of(ctx).output.table("locks", asked(ctx, work), columns)


def workers(ctx: typer.Context) -> None:
    """List workers that have checked in, and handlers that runs wait for and none of them has."""
    from lexigram.workflow.durable._listing import describe_unserved

    async def work(fleet: DurableFleet) -> tuple[Any, list[dict[str, Any]]]:
        missing = [describe_unserved(one) for one in await fleet.engine.unserved()]
        return await fleet.overview.workers(), missing

    rows, missing = asked(ctx, work)
    output = session_of(ctx).output
    output.table("workers", rows, ("id", "first_checkin", "last_checkin"), missing=missing)
    for one in missing if not output.json else ():
        output.warn(f"{one['message']}: waiting since {one['waits_since']}")


# --- by hand -------------------------------------------------------------------------------------


def retry(
    ctx: typer.Context,
    group: MaybeGroup = None,
    run: OneRun = None,
    hard: Annotated[
        bool, typer.Option("--hard", help="Every run that is not completed, also running ones.")
    ] = False,
) -> None:
    """Begin failed and cancelled runs again where they stopped; the group opens again."""
    _report_change(ctx, "retried", group, run, lambda engine, aim: engine.retry(**aim, hard=hard))


def cancel(ctx: typer.Context, group: MaybeGroup = None, run: OneRun = None) -> None:
    """Cancel what is not final; running steps are asked to stop, without waiting for them."""
    _report_change(ctx, "cancelled", group, run, lambda engine, aim: engine.cancel(**aim))


def pause(ctx: typer.Context, group: MaybeGroup = None, run: OneRun = None) -> None:
    """Keep runs from going on; running steps end first."""
    _report_change(ctx, "paused", group, run, lambda engine, aim: engine.pause(**aim))


def resume_durable(ctx: typer.Context, group: int | None, run: int | None) -> None:
    """Let paused runs go on; a part of ``workflow resume``."""
    _report_change(ctx, "resumed", group, run, lambda engine, aim: engine.resume(**aim))


def unlock(
    ctx: typer.Context,
    key: Annotated[
        str, typer.Argument(metavar="KEY", callback=bounded(check_name), help="The resource.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Required: its owner may still be writing.")
    ] = False,
    reason: Annotated[
        str, typer.Option(callback=bounded(check_text), help="Why; it goes to the log.")
    ] = "lexigram workflow",
) -> None:
    """Take a lock from its owner; exit code 1 when it is free."""
    if not force:
        raise CliError(
            f"the owner of {key} may still be writing",
            hint="look with `lexigram workflow locks`; --force takes it all the same",
        )

    async def work(fleet: DurableFleet) -> bool:
        return await fleet.engine.force_release_resource_lock(key, reason=reason)

    was_held = asked(ctx, work)
    text = f"{key} is free" if was_held else f"nobody holds {key}"
    session_of(ctx).output.text(text, {"resource_key": key, "released": was_held})
    if not was_held:
        raise typer.Exit(ExitCode.FAILURE)


def prune(
    ctx: typer.Context,
    older_than: Annotated[
        float | None,
        typer.Option(
            "--older-than",
            metavar="DAYS",
            callback=bounded(_check_days),
            help="Default: as configured.",
        ),
    ] = None,
) -> None:
    """Remove groups that ended so long ago, with all they have."""

    async def work(fleet: DurableFleet) -> int:
        seconds = fleet.config.retention if older_than is None else older_than * _DAY
        if older_than is None and not seconds:
            raise CliError(
                "groups are kept for ever: workflow.durable.retention is 0",
                hint="say how old they must be: --older-than DAYS",
            )
        removed = 0
        while gone := await fleet.engine.prune(seconds):
            removed += gone
        return removed

    removed = asked(ctx, work)
    session_of(ctx).output.text(f"{removed} runs removed", {"removed": removed})


# --- how -----------------------------------------------------------------------------------------


def asked(ctx: typer.Context, work: Callable[[DurableFleet], Awaitable[Any]]) -> Any:
    """Start the application, do the work, stop it."""
    from lexigram.workflow.durable.provider import DurableProvider

    session = session_of(ctx)
    if not any(isinstance(item, DurableProvider) for item in session.application.providers):
        raise CliError(
            f"{session.application.name} has no durable runs",
            hint="add WorkflowModule and SqlModule to its modules",
        )

    async def call(fleet: DurableFleet) -> Any:
        return await work(fleet)

    call.__annotations__ = {"fleet": DurableFleet}  # read by the container at run time
    return session.run(call)


def _report_change(
    ctx: typer.Context,
    what: str,
    group: int | None,
    run: int | None,
    change: Callable[[Any, dict[str, int | None]], Awaitable[int]],
) -> None:
    if (group is None) == (run is None):
        raise CliError("say which: a group or a run", hint="GROUP, or --run RUN")

    async def work(fleet: DurableFleet) -> int:
        if group is not None:
            await fleet.engine.stats(group)
        elif run is not None:
            await fleet.engine.run(run)
        return await change(fleet.engine, {"group_id": group, "run_id": run})

    number = asked(ctx, work)
    facts = {"group": group, "run": run, what: number}
    session_of(ctx).output.text(f"{number} runs {what}", facts)


async def _follow(
    session: Session, fleet: DurableFleet, group: int, *, here: bool
) -> dict[str, Any]:
    import anyio

    async with (
        fleet.following.working() if here else nullcontext(),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_tell_questions, session, fleet, group)
        await _draw(session, fleet.following.watch(group))
        tasks.cancel_scope.cancel()
    stats = await fleet.engine.stats(group)
    cancelled = (await fleet.overview.group(group))["cancelled"]
    failures = await fleet.following.failures(group, limit=_FAILURES) if stats.failed else ()
    shown = [asdict(one) for one in failures]
    return {"group": group, **stats.to_dict(), "cancelled": cancelled, "failures": shown}


async def _tell_questions(session: Session, fleet: DurableFleet, group: int) -> None:
    """Who only watches would not know why nothing goes on."""
    import anyio

    reported: set[tuple[int, str]] = set()
    problems: Sequence[str] = ()
    warned: set[str] = set()
    while True:
        # What is there twice: a worker that has just started has not said yet what it takes.
        seen = (await fleet.engine.stats(group)).problems
        for problem in set(seen).intersection(problems) - warned:
            session.output.warn(problem)
            warned.add(problem)
        problems = seen
        for one in await fleet.questions.open(group_id=group, limit=_QUESTIONS):
            if (one.run_id, one.prompt) not in reported:
                reported.add((one.run_id, one.prompt))
                session.output.warn(
                    f"run {one.run_id} asks at {one.step}: {one.prompt}"
                    f" (lexigram workflow answer {one.run_id} ANSWER)"
                )
        await anyio.sleep(_LOOK)


async def _draw(session: Session, statistics: AsyncIterator[RunGroupStats]) -> None:
    with session.output.progress("waiting") as update:
        async for now in statistics:
            if update is not None:
                update(
                    f"{now.running} running, {now.failed} failed",
                    completed=now.completed + now.failed,
                    total=now.total_runs,
                )


def _report_end(session: Session, facts: Mapping[str, Any]) -> None:
    cancelled = facts["cancelled"]
    failed = facts["failed"] - cancelled  # statistics count those as failed
    text = (
        f"group {facts['group']} {facts['group_status']}: {facts['completed']} completed,"
        f" {failed} failed" + (f", {cancelled} cancelled" if cancelled else "")
    )
    session.output.text(text, facts)
    for one in facts["failures"] if not session.output.json else ():
        reason = f"{one['error_type']}: {one['message']}"
        session.output.warn(f"run {one['run_id']} ({one['uri']}) failed at {one['step']}: {reason}")
    if failed > len(facts["failures"]) and not session.output.json:
        session.output.note(
            f"all of them: lexigram workflow runs -g {facts['group']} --status FAILED"
        )
    if facts["completed"] != facts["total_runs"]:
        raise typer.Exit(ExitCode.FAILURE)


async def _validate(fleet: DurableFleet, path: Path, *, upload: bool) -> dict[str, Any]:
    import anyio

    try:
        text = await anyio.Path(path).read_text(encoding="utf-8")
        await fleet.definitions.validate(text, str(path), is_upload=upload)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        return {"file": str(path), "is_valid": False, "problems": [f"{path}: {reason}"]}
    except DefinitionInvalidError as error:
        problems = [str(problem) for problem in error.problems]
        return {"file": str(path), "is_valid": False, "problems": problems}
    return {"file": str(path), "is_valid": True, "problems": []}


def _documents(given: Sequence[str]) -> list[str]:
    """Files, those below folders included; addresses as they are."""
    found: list[str] = []
    for item in given:
        path = Path(item)
        if path.is_dir():
            found += sorted(str(one) for one in path.rglob("*") if one.is_file())
        elif path.is_file() or "://" in item:
            found.append(item)
        else:
            raise CliError(f"there is no file {item}", details={"file": item})
    if not found:
        raise CliError("there are no documents in what was given")
    return found


def _overrides(given: Sequence[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for item in given:
        place, equals, text = item.partition("=")
        step, dot, name = place.partition(".")
        if not (equals and dot and step and name):
            raise CliError(f"--set {item!r} is not of the form STEP.NAME=VALUE")
        found.setdefault(step, {})[name] = parsed(text, f"--set {place}")
    return found


def _status(text: str | None) -> RunStatus | None:
    if text is None:
        return None
    try:
        return RunStatus(text.upper())
    except ValueError:
        known = ", ".join(status.value for status in RunStatus)
        raise CliError(f"there is no status {text!r}", hint=f"one of {known}") from None


def _describe_definition(item: Any) -> dict[str, Any]:
    from lexigram.workflow.durable._listing import describe_workflow

    return describe_workflow(item)


def _parameters(item: Any) -> dict[str, Any]:
    from lexigram.workflow.durable._listing import describe_params

    return describe_params(item)


def _short(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.3f} s"
