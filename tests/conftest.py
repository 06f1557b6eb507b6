"""What every test shares: settings, a watch on blocking calls, and databases with all tables."""

import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings

from lexigram.testing.services import Service

# No deadline: a busy machine is not a defect. Fixed examples in CI: a red run can be repeated.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


UNIT = Path(__file__).parent / "unit"
MAY_BLOCK = {
    # A module is read when it is first needed, and may read what it likes while it is made.
    "<frozen importlib._bootstrap>": {"_find_and_load"},
    # Before the first boot nothing else runs: the configuration is read, the graph checked.
    "lexigram/app/application.py": {"register"},
    "lexigram/di/container.py": {"freeze"},
    # The text of an error asks for the current folder, to show a short path.
    "lexigram/di/problems.py": {"__str__"},
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
def postgres_url(services: dict[str, Service]) -> Iterator[str]:
    """A schema of this run with all tables; a test empties those it uses."""
    schema = f"lex_{os.getpid()}_{secrets.token_hex(4)}"
    server = f"postgresql://postgres@{services['postgresql'].address}/test"
    anyio.run(_execute, server, f"CREATE SCHEMA {schema}")
    url = f"{server}?search_path={schema}"
    anyio.run(_upgrade, url)
    yield url
    anyio.run(_execute, server, f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
async def empty_schema(services: dict[str, Service]) -> AsyncIterator[str]:
    """The address of a PostgreSQL schema of this test alone, without tables."""
    schema = f"lex_{os.getpid()}_{secrets.token_hex(4)}"
    server = f"postgresql://postgres@{services['postgresql'].address}/test"
    await _execute(server, f"CREATE SCHEMA {schema}")
    yield f"{server}?search_path={schema}"
    await _execute(server, f"DROP SCHEMA {schema} CASCADE")


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


async def _execute(server: str, statement: str) -> None:
    import asyncpg

    admin = await asyncpg.connect(server)
    await admin.execute(statement)
    await admin.close()
