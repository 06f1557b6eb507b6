"""``lexigram db``: upgrade the tables of a database, or look where they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lexigram.cli.context import CommandContext
from lexigram.cli.errors import CliError
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.session import Session

if TYPE_CHECKING:
    from lexigram.sql import Database, SqlConfig
    from lexigram.sql.migrate import Migration, Status

T = TypeVar("T")

Target = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        help="The application whose database it is. Default: the one named in pyproject.toml; "
        "without one, section sql of the configuration in this folder.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Another database than the configured one."),
]
Only = Annotated[
    str | None, typer.Option("--only", metavar="DISTRIBUTION", help="One distribution.")
]

app = typer.Typer(help="Upgrade the tables of a database, or look where they are.")


@app.command()
def upgrade(ctx: CommandContext, only: Only = None, url: Url = None, target: Target = None) -> None:
    """Run every pending migration, in one transaction. With --only: and those it requires."""
    from lexigram.sql import migrate
    from lexigram.sql.migrate.installed import select

    session = ctx.obj

    async def work(database: Database) -> list[Migration]:
        wanted = {item.distribution for item in select(migrate.installed_migrations(), only)}
        states = await migrate.status(database)
        pending = sum(len(item.pending) for item in states if item.distribution in wanted)
        return await migrate.upgrade(database, only=only, tell=_progress(session, "", pending))

    applied = _with_database(_config(session, url, target), work)
    done = [_describe(item) for item in applied]
    session.output.text(
        f"migrations run: {len(done)}" if done else "the database is up to date",
        {"applied": done},
    )


@app.command()
def status(ctx: CommandContext, url: Url = None, target: Target = None) -> None:
    """Where each distribution is; the exit code is 4 unless all are up to date."""
    from lexigram.sql import migrate
    from lexigram.sql.migrate.versions import compare

    session = ctx.obj
    config = _config(session, url, target)
    if _file_is_missing(config):  # looking must not make it
        session.output.note("there is no database file yet")
        states = compare(migrate.installed_migrations(), {})
    else:
        states = _with_database(config, migrate.status)
    rows = [_state(item) for item in states]
    current = all(not (item.pending or item.too_new or item.too_old) for item in states)
    columns = ("distribution", "current", "head", "state", "pending")
    session.output.table("distributions", rows, columns, up_to_date=current)
    if not current:
        raise typer.Exit(ExitCode.UNHEALTHY)


@app.command()
def history(ctx: CommandContext, only: Only = None) -> None:
    """Every migration of the installed distributions, in the order in which they are run."""
    from lexigram.sql import migrate

    session = ctx.obj
    found = _run(lambda: migrate.history(only=only))
    rows = [_describe(item) for item in found if only in {None, item.distribution}]
    session.output.table("migrations", rows, ("distribution", "revision", "title"))


@app.command()
def downgrade(
    ctx: CommandContext,
    revision: Annotated[
        str, typer.Argument(metavar="REVISION", help="The last one to keep; base for none.")
    ],
    only: Annotated[
        str, typer.Option("--only", metavar="DISTRIBUTION", help="Whose migrations are undone.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    target: Target = None,
) -> None:
    """Undo migrations of one distribution, in one transaction: their tables and rows are gone."""
    from lexigram.sql import migrate

    session = ctx.obj
    config = _config(session, url, target)
    if _file_is_missing(config):
        raise CliError("there is no database file", hint="check --url, or section sql")
    if not yes:
        _ask(session, f"{only} goes back to {revision}; what came after loses its rows.")

    async def work(database: Database) -> list[Migration]:
        return await migrate.downgrade(
            database, revision, only=only, tell=_progress(session, "undone ", None)
        )

    undone = [_describe(item) for item in _with_database(config, work)]
    session.output.text(
        f"migrations undone: {len(undone)}" if undone else f"{only} is at {revision} already",
        {"undone": undone},
    )


@app.command()
def sql(
    ctx: CommandContext,
    only: Only = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="REVISION",
            help="What the database has of that distribution. Default: nothing.",
        ),
    ] = None,
    url: Url = None,
    target: Target = None,
) -> None:
    """Print what upgrade would do, as a script for this kind of database; none is opened."""
    from lexigram.sql import Database, migrate

    session = ctx.obj
    if start is not None and only is None:
        raise CliError("--from needs --only", hint="each distribution has its own revisions")
    dialect = Database(_config(session, url, target)).dialect
    script = _run(lambda: migrate.upgrade_sql(dialect, only=only, start=start))
    session.output.text(script, {"dialect": dialect, "sql": script})


def _config(session: Session, url: str | None, target: str | None) -> SqlConfig:
    """What ``--url`` says, else what the application would use, else the files of this folder."""
    from lexigram.cli.settings import read_config
    from lexigram.sql import SqlConfig, SqlProvider

    if url is not None:
        return SqlConfig(url=url)
    application = session.optional_application(target)
    for provider in application.providers if application else ():
        if isinstance(provider, SqlProvider) and provider.config is not None:
            return provider.config
    return read_config(application).get_section("sql", SqlConfig)


def _file_is_missing(config: SqlConfig) -> bool:
    from lexigram.sql.url import dialect_of, file_of, parse_url

    url = parse_url(config.url)
    file = file_of(url) if dialect_of(url) == "sqlite" else None
    return file is not None and not file.exists()


def _with_database(config: SqlConfig, work: Callable[[Database], Awaitable[T]]) -> T:
    from lexigram.sql import Database

    database = Database(config)  # outside the event loop: it asks for the current folder

    async def call() -> T:
        async with database:
            return await work(database)

    return _run(call)


def _run(work: Callable[[], Awaitable[T]]) -> T:
    import anyio

    return anyio.run(work)


def _progress(session: Session, verb: str, total: int | None) -> Callable[[Migration], None]:
    done = 0

    def tell(item: Migration) -> None:
        nonlocal done
        done += 1
        of = f"{done}/{total} " if total else ""
        session.output.note(f"{of}{verb}{item.distribution} {item.revision}  {item.title}")

    return tell


def _ask(session: Session, warning: str) -> None:
    if session.output.json:
        raise CliError("a downgrade loses rows", hint="--yes says that this is wanted")
    session.output.warn(warning)
    if not session.output.confirm("Go on?"):
        raise typer.Exit(ExitCode.FAILURE)


def _describe(item: Migration) -> dict[str, Any]:
    return {
        "distribution": item.distribution,
        "revision": item.revision,
        "title": item.title,
    }


def _state(item: Status) -> dict[str, Any]:
    return {
        "distribution": item.distribution,
        "current": item.current,
        "head": item.head,
        "state": item.state,
        "pending": list(item.pending),
        "installed": item.installed,
    }
