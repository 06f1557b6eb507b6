"""What every test shares: settings, a watch on blocking calls, and databases with all tables."""

import gc
import logging
import os
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings
from tests.names import RUN_VARIABLE, unique_identifier
from tests.order import deal

from lexigram.testing.conformance.suite import UNDECLARED_PROPERTY
from lexigram.testing.services import Service

if TYPE_CHECKING:
    from lexigram.sql import Database

# No deadline: a busy machine is not a defect. Fixed examples in CI: a red run can be repeated.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

# Also where pytest is started by hand on a machine that wants no bytecode: to rewrite the asserts
# of every test module again takes ten seconds, and every child process starts in twice the time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Without tests/run.py this process is the run: what it starts, the next run knows as its own.
os.environ.setdefault(RUN_VARIABLE, str(os.getpid()))

UNIT = Path(__file__).with_name("unit")
# What `make test` runs whole; of the other folders it runs what is marked.
QUICK = ("unit", "surface", "docs")
# Fixtures that start a double of a broker: its conformance suite belongs to `make test-all`.
DOUBLES = {"kafka_servers", "sqs", "servicebus", "pubsub"}


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark what `make test` runs; of what is left then, each parallel worker gets its share."""
    for item in items:
        if _is_quick(item):
            item.add_marker("quick")
    yield
    if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
        items[:] = deal(items, int(workers))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage meanwhile: there is next to none, and looking takes a fifth of the time.

    What the imports made is kept out of every later collection as well.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _is_quick(item: pytest.Item) -> bool:
    folder = item.nodeid.split("/")[1]
    if folder == "conformance" or item.get_closest_marker("promise"):
        doubles = DOUBLES.intersection(getattr(item, "fixturenames", ()))
        return not doubles and item.get_closest_marker("service") is None
    return folder in QUICK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line per reason how many tests were skipped; capabilities have their own list."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.getreports("skipped"):
        undeclared = UNDECLARED_PROPERTY in dict(getattr(report, "user_properties", ()))
        if isinstance(report.longrepr, tuple) and not undeclared:
            reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count:5d} {reason}")


@pytest.fixture(autouse=True)
def unconfigured_logging() -> Iterator[None]:
    """Commands that a test runs in this process set logging up: the next test begins without."""
    root = logging.getLogger()
    level = root.level
    yield
    if module := sys.modules.get("lexigram.observability.logging"):
        module.reset_logging()
    root.setLevel(level)  # caplog and capture_logs may have restored it in another order


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


MAY_BLOCK = {
    # A module is read when it is first needed, and may read what it likes while it is made.
    "<frozen importlib._bootstrap>": {"_find_and_load"},
    # Before the first boot nothing else runs: the configuration is read, the graph checked.
    "lexigram/app/application.py": {"register"},
    "lexigram/di/container.py": {"freeze"},
    # The text of an error asks for the current folder, to show a short path.
    "lexigram/di/binding.py": {"__str__"},
    # asyncpg looks for ~/.pgpass and certificates when it makes a connection, not later.
    "asyncpg/connect_utils.py": {"_parse_connect_arguments"},
}


@pytest.fixture(autouse=True)
def no_settings_from_outside(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit test means the same in every shell, and in CI with LEX_REQUIRE_SERVICES."""
    if request.path.is_relative_to(UNIT):
        for name in [name for name in os.environ if name.startswith("LEX_")]:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def blocking_calls_fail() -> Iterator[BlockBuster]:
    """Library code that blocks the event loop raises BlockingError in the test that ran it."""
    with blockbuster_ctx("lexigram") as watch:
        for call in watch.functions.values():
            for file, functions in MAY_BLOCK.items():
                call.can_block_in(file, functions)
        yield watch


@pytest.fixture(scope="module", autouse=True)
def leaks_fail_in_their_module() -> Iterator[None]:
    """Report a connection that nobody closed here, and not in a module that runs later."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: a migration of all chains costs more than most tests."""
    path = tmp_path_factory.mktemp("migrated") / "migrated.db"
    anyio.run(_upgrade, f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(migrated_file: Path, tmp_path: Path) -> str:
    """A file of this test alone, with all tables."""
    shutil.copy(migrated_file, tmp_path / "test.db")
    return f"sqlite:///{tmp_path}/test.db"


@pytest.fixture(scope="session")
def migrated_schema(services: Mapping[str, Service]) -> Iterator[str]:
    """A PostgreSQL schema of this process with all tables, made once."""
    schema, server = unique_identifier(), _server(services)
    anyio.run(_execute, server, f"CREATE SCHEMA {schema}")
    url = f"{server}?search_path={schema}"
    anyio.run(_upgrade, url)
    yield url
    anyio.run(_execute, server, f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def shared_schema(request: pytest.FixtureRequest) -> str:
    """The schema of this process with all tables, as the test before left it."""
    _require_mark(request, "postgresql")
    url: str = request.getfixturevalue("migrated_schema")
    return url


@pytest.fixture
async def postgres_url(shared_schema: str) -> str:
    """The schema of this process with all tables, every one of them empty."""
    await _execute(shared_schema, _EMPTY)
    return shared_schema


@pytest.fixture
async def sqlite(sqlite_url: str) -> AsyncIterator["Database"]:
    """A database of this test alone, with all tables."""
    from lexigram.sql import Database

    async with Database(sqlite_url) as database:
        yield database


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator["Database"]:
    """The database of this process with all tables, every one of them empty."""
    from lexigram.sql import Database

    async with Database(postgres_url) as database:
        yield database


@pytest.fixture
async def empty_schema(
    request: pytest.FixtureRequest, services: Mapping[str, Service]
) -> AsyncIterator[str]:
    """The address of a PostgreSQL schema of this test alone, without tables."""
    _require_mark(request, "postgresql")
    schema, server = unique_identifier(), _server(services)
    await _execute(server, f"CREATE SCHEMA {schema}")
    yield f"{server}?search_path={schema}"
    await _execute(server, f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture(scope="session")
def tables_of_postgresql() -> str:
    """The statements that make all tables: the server runs them in a fifth of an upgrade's time."""
    from lexigram.sql.migrate import upgrade_sql

    return anyio.run(upgrade_sql, "postgresql")


@pytest.fixture
async def own_schema(empty_schema: str, tables_of_postgresql: str) -> str:
    """The address of a PostgreSQL schema of this test alone, with all tables."""
    await _execute(empty_schema, tables_of_postgresql)
    return empty_schema


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
def migrated_url(request: pytest.FixtureRequest) -> str:
    """A database of this test alone, with all tables: once on SQLite, once on PostgreSQL."""
    name = "sqlite_url" if request.param == "sqlite" else "own_schema"
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of this test alone, without tables: once on SQLite, once on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    url: str = request.getfixturevalue("empty_schema")
    return url


async def _upgrade(url: str) -> None:
    from lexigram.sql import Database
    from lexigram.sql.migrate import upgrade

    async with Database(url) as database:
        await upgrade(database)


# DELETE takes a seventh of the time of TRUNCATE: nearly every table holds a few rows at most. Foreign
# keys are not checked meanwhile, so the order does not matter. What a migration wrote is kept.
_EMPTY = """
DO $$ DECLARE name text; BEGIN
    SET LOCAL session_replication_role = replica;
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema()
        AND NOT starts_with(tablename, 'migrations_of_') AND tablename <> 'lexigram_lock_fence'
    LOOP
        IF pg_relation_size(name::regclass) < 1000000 THEN EXECUTE format('DELETE FROM %I', name);
        ELSE EXECUTE format('TRUNCATE %I CASCADE', name); END IF;
    END LOOP;
    PERFORM setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
        FROM pg_sequences WHERE schemaname = current_schema() AND last_value IS NOT NULL;
END $$
"""


def _server(services: Mapping[str, Service]) -> str:
    return f"postgresql://postgres@{services['postgresql'].address}/test"


def _require_mark(request: pytest.FixtureRequest, name: str) -> None:
    """Fail a test that would break on a machine without the server, also where there is one."""
    if not any(name in mark.args for mark in request.node.iter_markers("service")):
        pytest.fail(f"a test that uses {name} needs @pytest.mark.service({name!r})", pytrace=False)


async def _execute(server: str, statement: str) -> None:
    import asyncpg

    admin = await asyncpg.connect(server)
    await admin.execute(statement)
    await admin.close()
