"""``lexigram lancedb``: list, describe, vacuum and verify vector databases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexigram.cli.contributors.base import BaseCliContributor
from lexigram.cli.errors import CliError
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.session import Session, session_of
from lexigram.config.escape import indent_lines
from lexigram.contracts.cli import CommandContribution
from lexigram.contracts.core.lock import LockConflictError
from lexigram.contracts.data.locks import ResourceLockKind
from lexigram.contracts.data.vector.errors import VectorStoreError

if TYPE_CHECKING:
    from lexigram.ai.workers.vectors.config import VectorConfig
    from lexigram.ai.workers.vectors.databases import VectorDatabases

Database = Annotated[str, typer.Argument(metavar="DB", help="Name of the database.")]
Folder = Annotated[
    str | None,
    typer.Option(
        "--dir",
        metavar="PATH",
        help="Folder of the databases. Default: the folder of the application, of"
        " `lexigram ingest`, or lancedb.",
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Release the SQL lock of another process first; logged. File locks cannot be"
        " released.",
    ),
]
Wait = Annotated[
    float, typer.Option("--wait", min=0.0, help="Time to wait for the lock, in seconds.")
]


class LanceDbCliContributor(BaseCliContributor):
    """The group ``lancedb``."""

    def get_commands(self) -> Sequence[CommandContribution]:
        """The command group; it works with and without an application."""
        return (
            CommandContribution(
                name="lancedb",
                help="List, describe, vacuum and verify vector databases.",
                app_factory_path="lexigram.ai.workers.vectors.cli:create_lancedb_app",
                contributor=self.contributor_id,
                category="AI",
            ),
        )


def create_lancedb_app() -> typer.Typer:
    """Create the command group."""
    app = typer.Typer(help="List, describe, vacuum and verify vector databases.")
    app.command("list")(list_databases)
    app.command("info")(info)
    app.command("vacuum")(vacuum)
    app.command("vacuum-all")(vacuum_all)
    app.command("verify")(verify)
    return app


def list_databases(ctx: typer.Context, folder: Folder = None) -> None:
    """List databases with collections, rows and size."""
    rows = _run_on_databases(ctx, folder, lambda databases: databases.describe_all())
    shown = [{"collections": None, "rows": None, "size_bytes": None, **row} for row in rows]
    columns = ("database", "collections", "rows", "size_bytes", "error")
    session_of(ctx).output.table("databases", shown, columns)


def info(ctx: typer.Context, database: Database, folder: Folder = None) -> None:
    """Show the collections of a database with rows, model, dimension and index."""
    facts = _run_on_databases(ctx, folder, lambda databases: databases.info(database))
    collections = facts.pop("collections")
    columns = ("name", "rows", "dimension", "metric", "model_id", "index", "state")
    output = session_of(ctx).output
    output.note(f"{facts['path']}: {facts['rows']} rows, {facts['size_bytes']} bytes")
    output.table("collections", collections, columns, **facts)


def vacuum(
    ctx: typer.Context,
    database: Database,
    force: Force = False,
    wait: Wait = 0.0,
    folder: Folder = None,
) -> None:
    """Compact a database and write DB.sha256; exit code 2 when it is locked."""
    outcome = _run_on_databases(
        ctx, folder, lambda databases: _vacuum(databases, database, wait, force)
    )
    session_of(ctx).output.text(_summarize(outcome), outcome)


def vacuum_all(ctx: typer.Context, wait: Wait = 0.0, folder: Folder = None) -> None:
    """Vacuum all databases; exit code 2 when one is locked, 1 when one fails."""

    async def work(databases: VectorDatabases) -> list[dict[str, Any]]:
        names = await databases.names()
        return [await _try_vacuum(databases, name, wait) for name in names]

    outcomes = _run_on_databases(ctx, folder, work)
    columns = ("database", "status", "freed_bytes", "size_bytes", "error")
    session_of(ctx).output.table("databases", outcomes, columns)
    found = {outcome["status"] for outcome in outcomes}
    if "failed" in found:
        raise typer.Exit(ExitCode.FAILURE)
    if "locked" in found:
        raise typer.Exit(ExitCode.USAGE)


def verify(ctx: typer.Context, database: Database, folder: Folder = None) -> None:
    """Verify a database against the checksum of its last vacuum; exit code 1 on a mismatch."""
    from lexigram.ai.workers.vectors.databases import as_data

    outcome = as_data(_run_on_databases(ctx, folder, lambda databases: databases.verify(database)))
    good = outcome["ok"]
    verdict = "ok" if good else "error"
    line = indent_lines(f"{database}: {verdict}: {outcome['reason']}")
    session_of(ctx).output.text(line, outcome)
    if not good:
        raise typer.Exit(ExitCode.FAILURE)


# --- running ---


async def _vacuum(
    databases: VectorDatabases, database: str, wait: float, force: bool
) -> dict[str, Any]:
    from lexigram.ai.workers.vectors.databases import as_data

    kind = ResourceLockKind.CLI
    return as_data(await databases.vacuum(database, kind=kind, max_wait=wait, force=force))


async def _try_vacuum(databases: VectorDatabases, database: str, wait: float) -> dict[str, Any]:
    nothing = {"database": database, "freed_bytes": None, "size_bytes": None}
    try:
        return {**await _vacuum(databases, database, wait, False), "status": "ok", "error": None}
    except LockConflictError as error:
        return {**nothing, "status": "locked", "error": error.message}
    except VectorStoreError as error:
        return {**nothing, "status": "failed", "error": error.message}


def _summarize(outcome: dict[str, Any]) -> str:
    return (
        f"{outcome['database']}: {outcome['freed_bytes']} bytes freed, "
        f"{outcome['size_bytes']} in use\nsha256 {outcome['checksum']}"
    )


def _run_on_databases(
    ctx: typer.Context, folder: str | None, work: Callable[[VectorDatabases], Awaitable[Any]]
) -> Any:
    """Run ``work`` on the databases; a held lock is exit code 2."""
    try:
        return _run_in_session(session_of(ctx), folder, work)
    except LockConflictError as error:
        # The same message: it is not shown as a cause as well.
        raise CliError(error.message, details=error.details, hint=error.hint) from None


def _run_in_session(
    session: Session, folder: str | None, work: Callable[[VectorDatabases], Awaitable[Any]]
) -> Any:
    import anyio
    from attrs import evolve

    from lexigram.ai.workers.vectors.choose import VectorStores
    from lexigram.ai.workers.vectors.databases import VectorDatabases

    async def work_on(stores: VectorStores) -> Any:
        config = stores.config if folder is None else evolve(stores.config, path=folder)
        own = VectorStores(config, locks=stores.locks)
        try:
            return await work(VectorDatabases(own))
        finally:
            await own.close()

    async def call(stores: VectorStores | None) -> Any:
        return await work_on(VectorStores() if stores is None else stores)

    if session.optional_application(None) is None:
        # Without an application file locks are sufficient.
        return anyio.run(work_on, VectorStores(_default_config()))
    call.__annotations__ = {"stores": VectorStores | None}  # read by the container at run time
    return session.run(call)


def _default_config() -> VectorConfig:
    """Return the default without an application: the index of `lexigram ingest`, if it exists."""
    from lexigram.ai.workers.cli.embedded import INDEX
    from lexigram.ai.workers.vectors.config import VectorConfig

    return VectorConfig(path=str(INDEX)) if INDEX.is_dir() else VectorConfig()
