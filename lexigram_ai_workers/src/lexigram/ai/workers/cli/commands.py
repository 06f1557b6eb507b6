"""``lexigram ai workers``: status, dead letters, maintenance. No worker is started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexigram.cli.errors import CliError
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.session import Session, session_of
from lexigram.config.escape import indent_lines

if TYPE_CHECKING:
    from lexigram.ai.workers.batch_embedding.worker import BatchEmbeddingWorker
    from lexigram.ai.workers.config import WorkersConfig
    from lexigram.ai.workers.dlq.worker import DeadLetterQueueWorker
    from lexigram.ai.workers.maintenance.worker import MaintenanceWorker
    from lexigram.ai.workers.types import DLQItem

Target = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        help="Application to load. Default: the one named in pyproject.toml.",
    ),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the dead letter.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of the dead letters.")]
Source = Annotated[
    str | None,
    typer.Option(
        "--source", help="Source of the dead letter, if the id is in several: jobs, bus or added."
    ),
]
Category = Annotated[
    str | None,
    typer.Option(
        "--category",
        help="Filter by category: transient, permanent, throttled, invalid_input, unknown.",
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=10_000, help="Maximum number of rows.")
]
Offset = Annotated[int, typer.Option("--offset", min=0, help="Number of rows to skip.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the task.")]
OptionalName = Annotated[str | None, typer.Argument(metavar="NAME", help="Filter by task.")]
Hours = Annotated[
    float, typer.Option("--hours", min=0.0, max=1_000_000.0, help="Time range, in hours.")
]

app = typer.Typer(help="Inspect AI workers, dead letters and maintenance tasks.")
ai = typer.Typer(help="Inspect and manage AI workers.")
dlq = typer.Typer(help="List, retry, archive and delete dead letters of jobs and messages.")
maintenance = typer.Typer(help="List, run, enable and disable maintenance tasks.")
app.add_typer(dlq, name="dlq")
app.add_typer(maintenance, name="maintenance")
ai.add_typer(app, name="workers")


@app.command()
def status(ctx: typer.Context, target: Target = None) -> None:
    """Show the configured workers, their pending jobs and dead letters."""
    session = session_of(ctx)

    async def work(
        config: WorkersConfig,
        embedding: BatchEmbeddingWorker,
        dead_letters: DeadLetterQueueWorker,
        maintenance_worker: MaintenanceWorker,
    ) -> dict[str, Any]:
        await dead_letters.collect()
        stats = await dead_letters.get_stats()
        await maintenance_worker.refresh()
        tasks = maintenance_worker.get_all_tasks()
        failing = [task["name"] for task in tasks if task["last_status"] == "failed"]
        return {
            "workers": [
                {
                    "worker": "embedding",
                    "concurrency": config.batch_embedding_concurrency,
                    **await _count_jobs(embedding.queue, "embedding"),
                },
                {
                    "worker": "ingestion",
                    "concurrency": config.document_ingestion_concurrency,
                    **await _count_jobs(embedding.queue, "ingestion"),
                },
            ],
            "model": embedding.embedding_provider.model_id,
            "maintenance": {
                "enabled": config.enable_maintenance,
                "tasks": len(tasks),
                "failing": failing,
            },
            "dead_letters": stats.to_dict(),
        }

    data = _run_in_application(session, target, work)
    if session.output.json:
        session.output.text("", data)
        return
    session.output.table(
        "workers",
        data["workers"],
        ("worker", "concurrency", "pending", "retrying", "running", "failed"),
    )
    dead_letters, maintenance_facts = data["dead_letters"], data["maintenance"]
    session.output.note(f"model: {data['model']}")
    session.output.note(
        f"maintenance: {maintenance_facts['tasks']} tasks"
        + (
            f", failing: {', '.join(maintenance_facts['failing'])}"
            if maintenance_facts["failing"]
            else ""
        )
        + ("" if maintenance_facts["enabled"] else ", disabled")
    )
    by_category = ", ".join(
        f"{count} {kind}" for kind, count in dead_letters["by_category"].items()
    )
    session.output.note(f"dead letters: {by_category or 'none'}")


# --- dead letters -------------------------------------------------------------------------------


@dlq.command("ls")
def list_dead_letters(
    ctx: typer.Context,
    category: Category = None,
    limit: Limit = 20,
    offset: Offset = 0,
    target: Target = None,
) -> None:
    """List dead letters, latest failure first."""
    session, wanted = session_of(ctx), _parse_category(category)

    async def work(worker: DeadLetterQueueWorker) -> list[dict[str, Any]]:
        await worker.collect()
        return [_describe(item) for item in await worker.get_items(wanted, limit, offset)]

    rows = _run_in_application(session, target, work)
    shown = [{**row, "error": row["error"].partition("\n")[0][:60]} for row in rows]
    columns = ("id", "source", "category", "state", "failures", "retries", "next_retry", "error")
    session.output.table("items", rows if session.output.json else shown, columns)


@dlq.command("show")
def show_dead_letter(
    ctx: typer.Context, dead_letter_id: Id, source: Source = None, target: Target = None
) -> None:
    """Show a dead letter with its payload and error."""
    session = session_of(ctx)

    async def work(worker: DeadLetterQueueWorker) -> dict[str, Any]:
        item = await _get_dead_letter(worker, dead_letter_id, source)
        return {**item.to_dict(), "original_job": item.original_job}

    data = _run_in_application(session, target, work)
    session.output.facts(data, data)


@dlq.command("retry")
def retry_dead_letters(
    ctx: typer.Context, dead_letter_ids: Ids, source: Source = None, target: Target = None
) -> None:
    """Retry dead letters now, regardless of category and retry count."""
    _apply_to_each(ctx, target, dead_letter_ids, source, "retry_item", "is queued for a retry")


@dlq.command("archive")
def archive_dead_letters(
    ctx: typer.Context, dead_letter_ids: Ids, source: Source = None, target: Target = None
) -> None:
    """Archive dead letters; they are no longer retried automatically."""
    _apply_to_each(ctx, target, dead_letter_ids, source, "archive_item", "is archived")


@dlq.command("delete")
def delete_dead_letters(
    ctx: typer.Context, dead_letter_ids: Ids, source: Source = None, target: Target = None
) -> None:
    """Delete dead letters permanently, also at their source."""
    _apply_to_each(ctx, target, dead_letter_ids, source, "remove_item", "is deleted")


@dlq.command("stats")
def show_dead_letter_stats(ctx: typer.Context, target: Target = None) -> None:
    """Show the number of dead letters by category, and total counts of actions."""
    session = session_of(ctx)

    async def work(worker: DeadLetterQueueWorker) -> dict[str, Any]:
        await worker.collect()
        return (await worker.get_stats()).to_dict()

    data = _run_in_application(session, target, work)
    lines = [f"{key}: {value}" for key, value in data.items() if key != "by_category"]
    lines += [f"  {kind}: {count}" for kind, count in data["by_category"].items()]
    session.output.text("\n".join(lines), data)


# --- maintenance --------------------------------------------------------------------------------


@maintenance.command("ls")
def list_tasks(ctx: typer.Context, target: Target = None) -> None:
    """List maintenance tasks with schedule and last run."""
    session = session_of(ctx)

    async def work(worker: MaintenanceWorker) -> list[dict[str, Any]]:
        await worker.refresh()
        return [
            {**task, "when": task["schedule_cron"] or f"every {task['interval_seconds']:g} s"}
            for task in worker.get_all_tasks()
        ]

    rows = _run_in_application(session, target, work)
    columns = ("name", "when", "enabled", "last_run", "last_status", "run_count")
    session.output.table("tasks", rows, columns)


@maintenance.command("run")
def run_task(ctx: typer.Context, name: Name, target: Target = None) -> None:
    """Run a task in this process; exit code 1 when it fails."""
    session = session_of(ctx)

    async def work(worker: MaintenanceWorker) -> dict[str, Any]:
        return (await worker.run_task_now(name)).to_dict()

    data = _run_in_application(session, target, work)
    text = data["error"] or (
        f"{data['items_processed']} items, {data['items_deleted']} deleted, "
        f"{data['duration_seconds']:.2f} s"
    )
    session.output.text(indent_lines(f"{name} {data['status']}: {text}"), data)
    if data["status"] == "failed":
        raise typer.Exit(ExitCode.FAILURE)


@maintenance.command("enable")
def enable_task(ctx: typer.Context, name: Name, target: Target = None) -> None:
    """Enable the schedule of a task."""
    _set_enabled(ctx, target, name, enabled=True)


@maintenance.command("disable")
def disable_task(ctx: typer.Context, name: Name, target: Target = None) -> None:
    """Disable the schedule of a task, also across restarts."""
    _set_enabled(ctx, target, name, enabled=False)


@maintenance.command("history")
def history(
    ctx: typer.Context, name: OptionalName = None, limit: Limit = 20, target: Target = None
) -> None:
    """List task runs of all processes, latest first."""
    session = session_of(ctx)

    async def work(worker: MaintenanceWorker) -> list[dict[str, Any]]:
        return [result.to_dict() for result in await worker.history(name, limit)]

    rows = [
        {**row, "duration_seconds": round(row["duration_seconds"], 3)}
        for row in _run_in_application(session, target, work)
    ]
    columns = ("task_name", "status", "started_at", "duration_seconds", "items_processed", "error")
    session.output.table("runs", rows, columns)


@maintenance.command("statistics")
def show_statistics(ctx: typer.Context, hours: Hours = 24.0, target: Target = None) -> None:
    """Show hourly statistics: job counts, cache hits, queue lengths."""
    from datetime import UTC, datetime, timedelta

    from lexigram import clock

    session = session_of(ctx)

    async def work(worker: MaintenanceWorker) -> list[dict[str, Any]]:
        found = await worker.statistics(clock.now() - timedelta(hours=hours + 1))
        return [
            {**row, "period": datetime.fromtimestamp(row["period"], UTC).isoformat()}
            for row in found
        ]

    session.output.table(
        "statistics", _run_in_application(session, target, work), ("period", "name", "value")
    )


# --- plumbing -----------------------------------------------------------------------------------


def _run_in_application(
    session: Session, target: str | None, work: Callable[..., Awaitable[Any]]
) -> Any:
    """Run ``work`` in the application, without its workers."""
    from lexigram.ai.workers.batch_embedding.worker import BatchEmbeddingWorker
    from lexigram.ai.workers.config import WorkersConfig
    from lexigram.ai.workers.di.provider import WorkersProvider
    from lexigram.ai.workers.dlq.worker import DeadLetterQueueWorker
    from lexigram.ai.workers.maintenance.worker import MaintenanceWorker

    application = session.load(target)
    if not any(isinstance(item, WorkersProvider) for item in application.providers):
        raise CliError(
            f"{application.name} has no AI workers",
            hint="add WorkersModule.configure() to its modules",
        )
    needs = {
        "config": WorkersConfig,
        "embedding": BatchEmbeddingWorker,
        "dead_letters": DeadLetterQueueWorker,
        "maintenance_worker": MaintenanceWorker,
    }
    if "worker" in work.__annotations__:
        kind = str(work.__annotations__["worker"])
        needs["worker"] = MaintenanceWorker if "Maintenance" in kind else DeadLetterQueueWorker
    # The container reads these at run time; above they are names for the type checker only.
    work.__annotations__ = {key: needs[key] for key in work.__annotations__ if key in needs}
    return session.run(work)


def _apply_to_each(
    ctx: typer.Context,
    target: str | None,
    dead_letter_ids: list[str],
    source: str | None,
    verb: str,
    text: str,
) -> None:
    """Apply an action to several dead letters; exit code 1 when one is unknown."""
    session = session_of(ctx)

    async def work(worker: DeadLetterQueueWorker) -> dict[str, bool]:
        await worker.collect()
        return {
            dead_letter_id: await getattr(worker, verb)(dead_letter_id, source)
            for dead_letter_id in dead_letter_ids
        }

    done: dict[str, bool] = _run_in_application(session, target, work)
    lines = [
        f"{dead_letter_id} {text}"
        if found
        else f"{dead_letter_id} is unknown, or its retry is running"
        for dead_letter_id, found in done.items()
    ]
    session.output.text("\n".join(lines), {"items": done})
    if not all(done.values()):
        raise typer.Exit(ExitCode.FAILURE)


def _set_enabled(ctx: typer.Context, target: str | None, name: str, *, enabled: bool) -> None:
    session = session_of(ctx)

    async def work(worker: MaintenanceWorker) -> dict[str, Any]:
        change = worker.enable_task if enabled else worker.disable_task
        if not change(name):
            known = ", ".join(task["name"] for task in worker.get_all_tasks())
            raise CliError(f"unknown maintenance task {name!r}", hint=f"use one of: {known}")
        if not await worker.sync():
            raise CliError(
                "the application has no durable schedules, so the change would be lost",
                hint="add ScheduleModule.configure() and SqlModule.configure() to its modules",
            )
        return worker.get_task_status(name) or {}

    data = _run_in_application(session, target, work)
    session.output.text(f"{name} is {'enabled' if enabled else 'disabled'}", data)


async def _get_dead_letter(
    worker: DeadLetterQueueWorker, dead_letter_id: str, source: str | None
) -> DLQItem:
    await worker.collect()
    item = await worker.get_item(dead_letter_id, source)
    if item is None:
        raise CliError(
            f"unknown dead letter {dead_letter_id!r}",
            hint="list them with `lexigram ai workers dlq ls`",
        )
    return item


async def _count_jobs(queue: Any, kind: str) -> dict[str, int]:
    from lexigram.ai.workers.di.factories import COUNTED_STATUSES, QUEUES

    return {status.value: await queue.count(QUEUES[kind], status) for status in COUNTED_STATUSES}


def _describe(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": item["job_id"],
        "source": item["metadata"].get("source"),
        "category": item["failure_category"],
        "state": item["metadata"].get("state"),
        "failures": item["failure_count"],
        "retries": f"{item['retry_count']}/{item['max_retries']}",
        "last_failure": item["last_failure"],
        "next_retry": item["next_retry"],
        "error": item["last_error"],
        "metadata": item["metadata"],
    }


def _parse_category(text: str | None) -> Any:
    from lexigram.ai.workers.types import FailureCategory

    if text is None:
        return None
    try:
        return FailureCategory(text)
    except ValueError as error:
        known = ", ".join(category.value for category in FailureCategory)
        raise CliError(f"unknown category {text!r}", hint=f"use one of: {known}") from error
