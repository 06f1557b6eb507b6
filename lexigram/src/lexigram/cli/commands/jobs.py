"""``lexigram jobs``: look at the jobs of an application, cancel, retry and run them, work on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexigram.cli.context import CommandContext
from lexigram.cli.errors import CliError
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.session import Session
from lexigram.cli.values import parse_value
from lexigram.config.escape import indent_lines

if TYPE_CHECKING:
    from lexigram.app import Application
    from lexigram.contracts.infra.tasks import Job, JobResult
    from lexigram.tasks import Jobs, TasksProvider, WorkerPools


def _check_key(param: typer.CallbackParam, value: str | list[str] | None) -> Any:
    """Exit code 2 with the name of the option for what no job can have."""
    from lexigram.contracts.infra.tasks import JobRefusedError
    from lexigram.tasks.intake import check_keys

    try:
        for text in value if isinstance(value, list) else [value]:
            check_keys(**{param.name or "value": text})
    except JobRefusedError as error:
        raise typer.BadParameter(error.message) from None
    return value


def _check_seconds(param: typer.CallbackParam, value: float | None) -> float | None:
    from lexigram.contracts.infra.tasks import JobRefusedError
    from lexigram.tasks.intake import check_age

    try:
        if value is not None:
            check_age(param.name or "value", value)
    except JobRefusedError as error:
        raise typer.BadParameter(error.message) from None
    return value


Id = Annotated[str, typer.Argument(metavar="ID", callback=_check_key, help="The job.")]
Target = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        help="The application. Default: the one named in pyproject.toml.",
    ),
]
Queue = Annotated[
    str | None, typer.Option("--queue", callback=_check_key, help="Of this queue only.")
]
Status = Annotated[
    str | None,
    typer.Option(
        "--status", help="pending, running, completed, failed, retrying or cancelled only."
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", callback=_check_key, help="Of this handler only.")
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many.")]
Offset = Annotated[
    int, typer.Option("--offset", min=0, max=2**63 - 1, help="How many to leave out first.")
]
Argument = Annotated[
    list[str] | None,
    typer.Option("--arg", metavar="NAME=VALUE", help="An argument; JSON where it is JSON."),
]
Priority = Annotated[
    int | None,
    typer.Option("--priority", min=-(2**31), max=2**31 - 1, help="Higher is more urgent."),
]
Detach = Annotated[bool, typer.Option("--detach", help="Enqueue only; print the id.")]
Here = Annotated[
    bool | None,
    typer.Option(
        "--here/--elsewhere",
        help="Do it in this process too. Default: when jobs are in memory.",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0.0, callback=_check_seconds, help="Seconds to follow it at most."
    ),
]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", callback=_check_key, help="Queues to take jobs from; default: all."),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", "-c", min=1, help="Jobs at the same time.")
]

app = typer.Typer(help="Look at jobs, cancel, retry and run them, work on them.")


@app.command()
def ls(
    ctx: CommandContext,
    queue: Queue = None,
    status: Status = None,
    name: Name = None,
    limit: Limit = 20,
    offset: Offset = 0,
    target: Target = None,
) -> None:
    """Jobs, latest first."""
    session = ctx.obj
    wanted = _status(status)

    async def work(jobs: Jobs) -> list[dict[str, Any]]:
        found = await jobs.find(queue=queue, status=wanted, name=name, limit=limit, offset=offset)
        return [_describe(job) for job in found]

    rows = _run_with_queue(session, target, work)
    columns = ("id", "name", "queue", "status", "attempts", "created", "error")
    shown = [{**row, "error": row["error"].partition("\n")[0][:60]} for row in rows]
    session.output.table("jobs", rows if session.output.json else shown, columns)


@app.command()
def show(ctx: CommandContext, job_id: Id, target: Target = None) -> None:
    """One job with its arguments, times, result or error."""
    session = ctx.obj

    async def work(jobs: Jobs) -> dict[str, Any]:
        job = await _find_job(jobs, job_id)
        result = await jobs.outcome(job_id)
        facts = {**_describe(job), **_settings(job)}
        return {**facts, "result": None if result is None else result.value}

    facts = _run_with_queue(session, target, work)
    session.output.facts(facts, facts)


@app.command()
def cancel(ctx: CommandContext, job_id: Id, target: Target = None) -> None:
    """End a job: at once while it waits; a running one is asked to stop."""
    session = ctx.obj

    async def work(jobs: Jobs) -> dict[str, Any]:
        job = await _find_job(jobs, job_id)
        if not await jobs.cancel(job_id):
            raise CliError(f"{job_id} has ended: it is {job.status.value}")
        return _describe(await _find_job(jobs, job_id))

    facts = _run_with_queue(session, target, work)
    outcome = "is cancelled" if facts["status"] == "cancelled" else "was asked to stop"
    session.output.text(f"{job_id} {outcome}", facts)


@app.command()
def retry(ctx: CommandContext, job_id: Id, target: Target = None) -> None:
    """Hand a failed or cancelled job out again, all its attempts anew."""
    session = ctx.obj

    async def work(jobs: Jobs) -> dict[str, Any]:
        job = await _find_job(jobs, job_id)
        if not await jobs.retry(job_id):
            raise CliError(
                f"{job_id} is {job.status.value} and cannot be tried again",
                hint="only failed and cancelled jobs can, and none whose unique key is taken",
            )
        return _describe(await _find_job(jobs, job_id))

    session.output.text(f"{job_id} waits to be done again", _run_with_queue(session, target, work))


@app.command()
def run(
    ctx: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", callback=_check_key, help="The handler.")],
    argument: Argument = None,
    queue: Queue = None,
    priority: Priority = None,
    detach: Detach = False,
    here: Here = None,
    timeout: Timeout = None,
    target: Target = None,
) -> None:
    """Enqueue a job and follow its progress to the end; exit code 1 unless it completed.

    Ctrl-C stops following; the job goes on where it runs, unless that is here.
    """
    from lexigram.tasks import JobOptions

    session = ctx.obj
    kwargs = _arguments(argument or [])
    options = JobOptions(queue=queue, priority=priority)

    async def work(jobs: Jobs, pools: WorkerPools) -> dict[str, Any]:
        job_id = await jobs.submit(name, options=options, **kwargs)
        if detach:
            return _describe(await _find_job(jobs, job_id))
        result = await _follow(session, jobs, pools, job_id, timeout, here)
        job = await _find_job(jobs, job_id)
        return {**_describe(job), "result": result.value}

    facts = _run_with_queue(session, target, work)
    if detach:
        session.output.text(facts["id"], facts)
        return
    detail = facts["error"] or facts["reason"] or facts["result"]
    ended = f"{facts['id']} {facts['status']}"
    session.output.text(
        ended if detail in (None, "") else f"{ended}: {indent_lines(str(detail))}", facts
    )
    if facts["status"] != "completed":
        raise typer.Exit(ExitCode.FAILURE)


@app.command("work")
def work_off(
    ctx: CommandContext,
    queues: Queues = None,
    concurrency: Concurrency = 10,
    target: Target = None,
) -> None:
    """Run the application with one pool of workers, as these options want it, until a signal.

    The first signal lets running jobs end and hands back the rest; a second ends it at once.
    """
    import anyio

    from lexigram.tasks import PoolSettings

    session = ctx.obj
    for provider in _providers(session.load_worker(target)):
        settings = PoolSettings(concurrency=concurrency, queues=tuple(queues or ()))
        provider.pools = {"cli": settings}
    session.configure_logging()
    anyio.run(session.application.serve)


def _run_with_queue(
    session: Session, target: str | None, work: Callable[..., Awaitable[Any]]
) -> Any:
    """Start the application, do the work, stop it."""
    from lexigram.tasks import Jobs, WorkerPools

    _providers(session.load(target))  # refuses an application without jobs
    needs = {"jobs": Jobs, "pools": WorkerPools}
    # Read by the container at run time; here they are names for the type checker only.
    work.__annotations__ = {key: needs[key] for key in work.__annotations__ if key in needs}
    return session.run(work)


def _providers(application: Application) -> Sequence[TasksProvider]:
    from lexigram.tasks import TasksProvider

    found = [item for item in application.providers if isinstance(item, TasksProvider)]
    if not found:
        raise CliError(
            f"{application.name} has no jobs", hint="add TasksModule.configure() to its modules"
        )
    return found


async def _follow(
    session: Session,
    jobs: Jobs,
    pools: WorkerPools,
    job_id: str,
    timeout: float | None,
    here: bool | None,
) -> JobResult:
    import anyio

    from lexigram.tasks import PoolSettings

    worker = None
    if here or (here is None and not pools.is_durable):
        worker = pools.default_worker("cli", PoolSettings(concurrency=1))
        await worker.start()
    try:
        with anyio.fail_after(timeout):
            await _draw_progress(session, jobs, job_id)
        return await jobs.wait(job_id)
    except TimeoutError as error:
        raise CliError(
            f"{job_id} did not end within {timeout:g} s; it goes on",
            hint=f"lexigram jobs show {job_id}; does a worker run? lexigram jobs work",
        ) from error
    finally:
        if worker is not None:
            with anyio.CancelScope(shield=True):
                await worker.stop()


async def _draw_progress(session: Session, jobs: Jobs, job_id: str) -> None:
    with session.output.progress("waiting") as update:
        async for snapshot in jobs.watch(job_id):
            if update is not None:
                update(
                    snapshot.message or snapshot.status.value,
                    completed=snapshot.current,
                    total=snapshot.total or None,
                )


def _arguments(given: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals or not name.isidentifier():
            raise CliError(f"--arg {item!r} is not of the form NAME=VALUE")
        found[name] = parse_value(text, f"--arg {name}")
    return found


def _status(text: str | None) -> Any:
    from lexigram.contracts.infra.tasks import JobStatus

    if text is None:
        return None
    try:
        return JobStatus(text)
    except ValueError as error:
        known = ", ".join(status.value for status in JobStatus)
        raise CliError(f"there is no status {text!r}", hint=f"one of {known}") from error


async def _find_job(jobs: Jobs, job_id: str) -> Job:
    from lexigram.contracts.infra.tasks import UnknownJobError

    job = await jobs.get(job_id)
    if job is None:
        raise UnknownJobError(
            f"there is no job {job_id!r}",
            details={"job_id": job_id},
            hint="lexigram jobs ls shows those that are kept",
        )
    return job


def _describe(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name,
        "queue": job.queue,
        "status": job.status.value,
        "attempts": job.retry_count,
        "created": _moment(job.created_at),
        "error": job.last_error,
        "reason": job.reason,
    }


def _settings(job: Job) -> dict[str, Any]:
    return {
        "args": list(job.args),
        "kwargs": dict(job.kwargs),
        "priority": job.priority,
        "max_retries": job.max_retries,
        "timeout": job.timeout,
        "scheduled": _moment(job.scheduled_at),
        "started": _moment(job.started_at),
        "completed": _moment(job.completed_at),
        "lost": job.lost_count,
        "unique_key": job.unique_key,
        "idempotency_key": job.idempotency_key,
        "depends_on": list(job.depends_on),
        "correlation_id": job.correlation_id,
        "causation_id": job.causation_id,
        "cancel_requested": job.cancel_requested or None,
    }


def _moment(value: Any) -> str | None:
    return None if value is None else value.isoformat(timespec="seconds")
