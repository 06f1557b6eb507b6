"""``lexigram worker``: work on durable runs until a signal, then drain."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lexigram.cli.errors import CliError
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.session import Session, session_of
from lexigram.workflow.durable.fleet import pools_of
from lexigram.workflow.durable.provider import DurableProvider

Target = Annotated[
    str | None,
    typer.Argument(metavar="[MODULE:APP]", help="Default: the one named in pyproject.toml."),
]
Pools = Annotated[
    str | None,
    typer.Option(
        "--pools",
        metavar="TYPE=N,...",
        help="Consumers by step type, * for all others: parse=8,store=4,*=2.",
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", help="What its id begins with, in lists and logs.")
]


def create_worker_app() -> typer.Typer:
    """The command."""
    app = typer.Typer()
    app.command()(worker)
    return app


def worker(
    ctx: typer.Context, target: Target = None, pools: Pools = None, name: Name = None
) -> None:
    """Run an application with a worker for durable runs until SIGINT or SIGTERM.

    The first signal lets running steps end and gives back the rest; a second ends it at once.
    Standard output gets a line for each state: started, draining, stopped.
    """
    import anyio

    session = session_of(ctx)
    provider = _configure(session, target, pools, name)
    session.configure_logging()
    anyio.run(session.application.serve, lambda: _work(session, provider))
    session.output.line("the worker stopped", {"state": "stopped"})
    if provider.fleet is not None and (running := provider.fleet.worker) is not None:
        for task, error in running.failed_tasks.items():
            session.output.warn(f"task {task} failed: {error}")
        if running.failure is not None or running.failed_tasks:
            raise typer.Exit(ExitCode.FAILURE)


def _configure(
    session: Session, target: str | None, pools: str | None, name: str | None
) -> DurableProvider:
    application = session.load_worker(target)
    found = [item for item in application.providers if isinstance(item, DurableProvider)]
    if not found:
        raise CliError(
            f"{application.name} has no durable runs", hint="add WorkflowModule to its modules"
        )
    provider = found[0]
    provider.run_worker, provider.worker_name = True, name
    if pools is not None:
        try:
            provider.consumers = pools_of(pools)
        except ValueError as error:
            raise CliError(f"--pools: {error}", hint="--pools parse=8,store=4,*=2") from None
    return provider


async def _work(session: Session, provider: DurableProvider) -> None:
    """Until a signal cancels it, or the worker dies."""
    import anyio

    assert provider.fleet is not None
    engine = provider.fleet.engine  # raises where there is no database
    running = provider.worker
    facts: dict[str, Any] = {
        "worker": running.id,
        "pools": dict(running.config.consumers),
        "database": engine.database.address,
    }
    pools = ", ".join(f"{pool}={size}" for pool, size in running.config.consumers.items())
    session.output.line(
        f"worker {running.id} works on {facts['database']}: {pools}", {"state": "started", **facts}
    )
    try:
        await running.ended()
    except anyio.get_cancelled_exc_class():
        session.output.line(
            f"draining: {running.busy} steps at work",
            {"state": "draining", "worker": running.id, "busy": running.busy},
        )
        raise
    if running.failure is not None:
        raise running.failure
