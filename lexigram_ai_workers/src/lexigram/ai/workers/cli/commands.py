"""``lexigram workers``: status, dead letters, maintenance. They look, and start no worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexigram.cli.errors import CliError
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.session import Session, session_of

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
        help="The application. Default: the one named in pyproject.toml.",
    ),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The dead letter.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="The dead letters.")]
Source = Annotated[
    str | None,
    typer.Option("--source", help="jobs, bus or added: where several have a letter of one id."),
]
Category = Annotated[
    str | None,
    typer.Option(
        "--category", help="transient, permanent, throttled, invalid_input or unknown only."
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many.")]
Offset = Annotated[int, typer.Option("--offset", min=0, help="How many to leave out first.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The task.")]
OptionalName = Annotated[str | None, typer.Argument(metavar="NAME", help="One task only.")]
Hours = Annotated[float, typer.Option("--hours", min=0.0, help="How far back.")]

app = typer.Typer(help="Look at the AI workers, their dead letters and their maintenance.")
dlq = typer.Typer(help="Dead letters of jobs and bus: look, retry, archive, delete.")
maintenance = typer.Typer(help="Maintenance tasks: look, run, enable, disable.")
app.add_typer(dlq, name="dlq")
app.add_typer(maintenance, name="maintenance")


@app.command()
def status(ctx: typer.Context, target: Target = None) -> None:
    """The workers as they are set up, what waits for them, and their dead letters."""
    session = session_of(ctx)

    async def work(
        config: WorkersConfig,
        embedding: BatchEmbeddingWorker,
        dead_letters: DeadLetterQueueWorker,
        upkeep: MaintenanceWorker,
    ) -> dict[str, Any]:
        await dead_letters.collect()
        stats = await dead_letters.get_stats()
        await upkeep.refresh()
        tasks = upkeep.get_all_tasks()
        failing = [task["name"] for task in tasks if task["last_status"] == "failed"]
        return {
            "workers": [
                {
                    "worker": "embedding",
                    "concurrency": config.batch_embedding_concurrency,
                    **await _waiting(embedding.queue, "embedding"),
                },
                {
                    "worker": "ingestion",
                    "concurrency": config.document_ingestion_concurrency,
                    **await _waiting(embedding.queue, "ingestion"),
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

    facts = _asked(session, target, work)
    if session.output.json:
        session.output.text("", facts)
        return
    session.output.table(
        "workers",
        facts["workers"],
        ("worker", "concurrency", "pending", "retrying", "running", "failed"),
    )
    letters, upkeep = facts["dead_letters"], facts["maintenance"]
    session.output.note(f"model: {facts['model']}")
    session.output.note(
        f"maintenance: {upkeep['tasks']} tasks"
        + (f", failing: {', '.join(upkeep['failing'])}" if upkeep["failing"] else "")
        + ("" if upkeep["enabled"] else ", switched off")
    )
    by_category = ", ".join(f"{count} {kind}" for kind, count in letters["by_category"].items())
    session.output.note(f"dead letters: {by_category or 'none'}")


# --- dead letters -------------------------------------------------------------------------------


@dlq.command("ls")
def list_letters(
    ctx: typer.Context,
    category: Category = None,
    limit: Limit = 20,
    offset: Offset = 0,
    target: Target = None,
) -> None:
    """Dead letters, the latest failure first."""
    session, wanted = session_of(ctx), _category(category)

    async def work(worker: DeadLetterQueueWorker) -> list[dict[str, Any]]:
        await worker.collect()
        return [_described(item) for item in await worker.get_items(wanted, limit, offset)]

    rows = _asked(session, target, work)
    shown = [{**row, "error": row["error"].partition("\n")[0][:60]} for row in rows]
    columns = ("id", "source", "category", "state", "failures", "retries", "next_retry", "error")
    session.output.table("items", rows if session.output.json else shown, columns)


@dlq.command("show")
def show_letter(
    ctx: typer.Context, letter_id: Id, source: Source = None, target: Target = None
) -> None:
    """One dead letter with what failed and why."""
    session = session_of(ctx)

    async def work(worker: DeadLetterQueueWorker) -> dict[str, Any]:
        item = await _known(worker, letter_id, source)
        return {**item.to_dict(), "original_job": item.original_job}

    facts = _asked(session, target, work)
    shown = (f"{key}: {value}" for key, value in facts.items() if value not in (None, "", {}))
    session.output.text("\n".join(shown), facts)


@dlq.command("retry")
def retry_letters(
    ctx: typer.Context, letter_ids: Ids, source: Source = None, target: Target = None
) -> None:
    """Try dead letters again now, whatever their category and the tries they had."""
    _each(ctx, target, letter_ids, source, "retry_item", "waits to be done again")


@dlq.command("archive")
def archive_letters(
    ctx: typer.Context, letter_ids: Ids, source: Source = None, target: Target = None
) -> None:
    """Keep dead letters to look at; they are never tried again by themselves."""
    _each(ctx, target, letter_ids, source, "archive_item", "is archived")


@dlq.command("delete")
def delete_letters(
    ctx: typer.Context, letter_ids: Ids, source: Source = None, target: Target = None
) -> None:
    """Drop dead letters for good, also where they came from."""
    _each(ctx, target, letter_ids, source, "remove_item", "is gone")


@dlq.command("stats")
def stats_of_letters(ctx: typer.Context, target: Target = None) -> None:
    """How many there are by category, and what was done with all there ever were."""
    session = session_of(ctx)

    async def work(worker: DeadLetterQueueWorker) -> dict[str, Any]:
        await worker.collect()
        return (await worker.get_stats()).to_dict()

    facts = _asked(session, target, work)
    lines = [f"{key}: {value}" for key, value in facts.items() if key != "by_category"]
    lines += [f"  {kind}: {count}" for kind, count in facts["by_category"].items()]
    session.output.text("\n".join(lines), facts)


# --- maintenance --------------------------------------------------------------------------------


@maintenance.command("ls")
def list_tasks(ctx: typer.Context, target: Target = None) -> None:
    """Every task: when it runs, and how its last run went."""
    session = session_of(ctx)

    async def work(worker: MaintenanceWorker) -> list[dict[str, Any]]:
        await worker.refresh()
        return [
            {**task, "when": task["schedule_cron"] or f"every {task['interval_seconds']:g} s"}
            for task in worker.get_all_tasks()
        ]

    rows = _asked(session, target, work)
    columns = ("name", "when", "enabled", "last_run", "last_status", "run_count")
    session.output.table("tasks", rows, columns)


@maintenance.command("run")
def run_task(ctx: typer.Context, name: Name, target: Target = None) -> None:
    """Run a task here and now; exit code 1 when it failed."""
    session = session_of(ctx)

    async def work(worker: MaintenanceWorker) -> dict[str, Any]:
        return (await worker.run_task_now(name)).to_dict()

    facts = _asked(session, target, work)
    told = facts["error"] or (
        f"{facts['items_processed']} items, {facts['items_deleted']} deleted, "
        f"{facts['duration_seconds']:.2f} s"
    )
    session.output.text(f"{name} {facts['status']}: {told}", facts)
    if facts["status"] == "failed":
        raise typer.Exit(ExitCode.FAILURE)


@maintenance.command("enable")
def enable_task(ctx: typer.Context, name: Name, target: Target = None) -> None:
    """Run a task on its schedule again."""
    _switch(ctx, target, name, enabled=True)


@maintenance.command("disable")
def disable_task(ctx: typer.Context, name: Name, target: Target = None) -> None:
    """Run a task no more until it is enabled; also after a restart."""
    _switch(ctx, target, name, enabled=False)


@maintenance.command("history")
def history(
    ctx: typer.Context, name: OptionalName = None, limit: Limit = 20, target: Target = None
) -> None:
    """Runs of all processes, latest first."""
    session = session_of(ctx)

    async def work(worker: MaintenanceWorker) -> list[dict[str, Any]]:
        return [result.to_dict() for result in await worker.history(name, limit)]

    rows = [
        {**row, "duration_seconds": round(row["duration_seconds"], 3)}
        for row in _asked(session, target, work)
    ]
    columns = ("task_name", "status", "started_at", "duration_seconds", "items_processed", "error")
    session.output.table("runs", rows, columns)


@maintenance.command("figures")
def figures(ctx: typer.Context, hours: Hours = 24.0, target: Target = None) -> None:
    """What roll-ups wrote: sums and levels by the hour."""
    from datetime import UTC, datetime, timedelta

    from lexigram import clock

    session = session_of(ctx)

    async def work(worker: MaintenanceWorker) -> list[dict[str, Any]]:
        found = await worker.figures(clock.now() - timedelta(hours=hours + 1))
        return [
            {**row, "period": datetime.fromtimestamp(row["period"], UTC).isoformat()}
            for row in found
        ]

    session.output.table("figures", _asked(session, target, work), ("period", "name", "value"))


# --- plumbing -----------------------------------------------------------------------------------


def _asked(session: Session, target: str | None, work: Callable[..., Awaitable[Any]]) -> Any:
    """Start the application without its workers, do the work, stop it."""
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
        "upkeep": MaintenanceWorker,
    }
    if "worker" in work.__annotations__:
        kind = str(work.__annotations__["worker"])
        needs["worker"] = MaintenanceWorker if "Maintenance" in kind else DeadLetterQueueWorker
    # Read by the container at run time; above they are names for the type checker only.
    work.__annotations__ = {key: needs[key] for key in work.__annotations__ if key in needs}
    return session.run(work)


def _each(
    ctx: typer.Context,
    target: str | None,
    letter_ids: list[str],
    source: str | None,
    verb: str,
    told: str,
) -> None:
    """The same for several letters; exit code 1 when one of them is not known."""
    session = session_of(ctx)

    async def work(worker: DeadLetterQueueWorker) -> dict[str, bool]:
        await worker.collect()
        return {
            letter_id: await getattr(worker, verb)(letter_id, source) for letter_id in letter_ids
        }

    done: dict[str, bool] = _asked(session, target, work)
    lines = [
        f"{letter_id} {told}" if found else f"{letter_id} is not known, or being tried"
        for letter_id, found in done.items()
    ]
    session.output.text("\n".join(lines), {"items": done})
    if not all(done.values()):
        raise typer.Exit(ExitCode.FAILURE)


def _switch(ctx: typer.Context, target: str | None, name: str, *, enabled: bool) -> None:
    session = session_of(ctx)

    async def work(worker: MaintenanceWorker) -> dict[str, Any]:
        change = worker.enable_task if enabled else worker.disable_task
        if not change(name):
            known = ", ".join(task["name"] for task in worker.get_all_tasks())
            raise CliError(f"there is no task {name!r}", hint=f"there are: {known}")
        if not await worker.sync():
            raise CliError(
                "the application keeps no schedules, so this would be forgotten",
                hint="add ScheduleModule.configure() and SqlModule.configure() to its modules",
            )
        return worker.get_task_status(name) or {}

    facts = _asked(session, target, work)
    session.output.text(f"{name} is {'enabled' if enabled else 'disabled'}", facts)


async def _known(worker: DeadLetterQueueWorker, letter_id: str, source: str | None) -> DLQItem:
    await worker.collect()
    item = await worker.get_item(letter_id, source)
    if item is None:
        raise CliError(
            f"there is no dead letter {letter_id!r}", hint="lexigram workers dlq ls shows them"
        )
    return item


async def _waiting(queue: Any, kind: str) -> dict[str, int]:
    from lexigram.ai.workers.di.parts import LEVELS, QUEUES

    return {status.value: await queue.count(QUEUES[kind], status) for status in LEVELS}


def _described(item: dict[str, Any]) -> dict[str, Any]:
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


def _category(text: str | None) -> Any:
    from lexigram.ai.workers.types import FailureCategory

    if text is None:
        return None
    try:
        return FailureCategory(text)
    except ValueError as error:
        known = ", ".join(category.value for category in FailureCategory)
        raise CliError(f"there is no category {text!r}", hint=f"one of {known}") from error
