"""Migrations on both databases: what they promise before, during and after a run."""

import asyncio
import importlib
import sys
from itertools import count
from textwrap import dedent

import anyio
import pytest

from lexigram.sql import (
    ConstraintViolationError,
    Database,
    DatabaseOutdatedError,
    DatabaseTooNewError,
    Migrate,
    MigrationError,
    SqlConfig,
    SqlModule,
    TransactionScopeError,
)
from lexigram.sql.migrate import (
    Migrations,
    check,
    downgrade,
    installed_migrations,
    snapshot,
    status,
    upgrade,
    upgrade_sql,
)
from lexigram.sql.migrate.fresh import metadata_of
from lexigram.testing import boot

pytestmark = pytest.mark.anyio

_names = count(1)
INSTALLED = installed_migrations()  # read here: it blocks the first time

ORDERS = """
    \"\"\"Orders.\"\"\"
    import sqlalchemy as sa
    from alembic import op

    def upgrade() -> None:
        op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))

    def downgrade() -> None:
        op.drop_table("orders")
"""
NOTES = """
    \"\"\"Notes on orders.\"\"\"
    import sqlalchemy as sa
    from alembic import op

    def upgrade() -> None:
        op.create_table(
            "notes",
            sa.Column("id", sa.Integer, primary_key=True),
            sa.Column("order_id", sa.Integer, sa.ForeignKey("orders.id", ondelete="CASCADE")),
        )
        op.execute("INSERT INTO orders (id) VALUES (1)")
        op.execute("INSERT INTO notes (id, order_id) VALUES (1, 1)")

    def downgrade() -> None:
        op.drop_table("notes")
        op.execute("DELETE FROM orders")
"""
BROKEN = """
    \"\"\"Half of it works.\"\"\"
    from alembic import op

    def upgrade() -> None:
        op.execute("CREATE TABLE half (id INTEGER)")
        op.execute("INSERT INTO half VALUES (1)")
        op.execute("INSERT INTO nowhere VALUES (1)")

    def downgrade() -> None:
        op.execute("DROP TABLE half")
"""
REBUILT = """
    \"\"\"Orders get a total: on SQLite the table is replaced.\"\"\"
    import sqlalchemy as sa
    from alembic import op

    def upgrade() -> None:
        with op.batch_alter_table("orders", recreate="always" if SQLITE() else "never") as orders:
            orders.add_column(sa.Column("total", sa.Integer, server_default="0", nullable=False))

    def downgrade() -> None:
        with op.batch_alter_table("orders") as orders:
            orders.drop_column("total")

    def SQLITE() -> bool:
        return op.get_bind().dialect.name == "sqlite"
"""


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
def config(request, tmp_path):
    if request.param == "sqlite":
        return SqlConfig(url=f"sqlite:///{tmp_path}/a.db")
    return request.getfixturevalue("empty")()


@pytest.fixture
async def empty(make):
    """Configurations of a schema without any table."""
    async with Database(make()) as database:
        await database.execute("DROP TABLE t")
    return make


@pytest.fixture
async def database(config):
    async with Database(config) as opened:
        yield opened


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """``distribution("shop", orders=ORDERS)`` is a record of migrations in files of its own."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name, requires=(), metadata=(), **files):
        package = f"{name.replace('-', '_')}_{next(_names)}"
        versions = tmp_path / package / "versions"
        versions.mkdir(parents=True)
        for number, (what, text) in enumerate(files.items(), 1):
            (versions / f"{number:04}_{what}.py").write_text(dedent(text), encoding="utf-8")
        importlib.invalidate_caches()
        return Migrations(
            distribution=name,
            versions=f"{package}.versions",
            requires=requires,
            metadata=metadata,
        )

    return make


async def tables(database):
    return sorted((await snapshot(database))["tables"])


async def test_migrations_and_metadata_give_the_same_schema(database, config, request):
    applied = await upgrade(database)
    assert [(item.distribution, item.revision) for item in applied] == [
        (item.distribution, revision) for item in INSTALLED for revision in item.files
    ]
    by_migrations = await snapshot(database)
    versions = {item.version_table for item in INSTALLED}
    for item in reversed(INSTALLED):
        await downgrade(database, "base", only=item.distribution)
    # Nothing is left but what says that nothing is there.
    assert await tables(database) == sorted(versions)

    def create(connection):
        for item in INSTALLED:
            for metadata in metadata_of(item):
                metadata.create_all(connection)

    await database.restructure(create)
    by_metadata = await snapshot(database)
    assert by_metadata["views"] == by_migrations["views"]
    for name in by_migrations["tables"].keys() | by_metadata["tables"].keys():
        if name not in versions:
            assert by_metadata["tables"].get(name) == by_migrations["tables"].get(name), name


async def test_a_new_database_in_memory_is_the_same_as_a_migrated_file(tmp_path):
    async with Database("sqlite://") as memory, Database(f"sqlite:///{tmp_path}/a.db") as file:
        assert await upgrade(memory) == []  # made at once
        assert await upgrade(file) != []
        assert await snapshot(memory) == await snapshot(file)
        assert await upgrade(memory) == []


async def test_a_database_in_memory_that_has_tables_already_is_migrated(distribution):
    shop = distribution("shop", orders=ORDERS)
    async with Database("sqlite://") as memory:
        await memory.execute("CREATE TABLE mine (id INTEGER)")
        applied = await upgrade(memory, migrations=[*INSTALLED, shop])
        assert ("shop", "0001") in [(item.distribution, item.revision) for item in applied]
        assert {"mine", "orders", "lexigram_locks"} <= set(await tables(memory))


async def test_an_application_starts_in_memory_without_alembic():
    source = dedent("""
        import anyio, sys
        from lexigram.sql import SqlModule
        from lexigram.testing import boot

        async def main():
            async with boot(SqlModule.stub()):
                assert "alembic" not in sys.modules

        anyio.run(main)
    """)
    done = await anyio.run_process([sys.executable, "-c", source], check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")


async def test_downgrade_then_upgrade_gives_the_same_schema(database):
    await upgrade(database)
    before = await snapshot(database)
    for item in reversed(INSTALLED):
        for target in [*reversed(list(item.files)), "base"]:  # each downgrade by itself too
            await downgrade(database, target, only=item.distribution)
    await upgrade(database)
    assert await snapshot(database) == before
    assert all(item.state == "up to date" for item in await status(database))


async def test_distributions_are_upgraded_in_the_order_of_their_requirements(
    database, distribution
):
    core = next(item for item in INSTALLED if item.distribution == "lexigram")
    notes = distribution("a-notes", requires=("shop",), notes=NOTES)
    shop = distribution("shop", orders=ORDERS)
    told = []
    applied = await upgrade(database, migrations=[notes, shop, core], tell=told.append)
    assert told == applied
    names = list(dict.fromkeys(item.distribution for item in applied))
    assert names == ["lexigram", "shop", "a-notes"]
    assert applied[-1].title == "Notes on orders."


async def test_only_one_distribution_and_what_it_requires(database, distribution):
    shop = distribution("shop", orders=ORDERS)
    notes = distribution("notes", requires=("shop",), notes=NOTES)
    other = distribution("other", broken=BROKEN)
    applied = await upgrade(database, only="notes", migrations=[other, notes, shop])
    assert [item.distribution for item in applied] == ["shop", "notes"]
    assert [item.state for item in await status(database, migrations=[other, notes, shop])] == [
        "outdated",
        "up to date",
        "up to date",
    ]


async def test_a_removed_distribution_does_not_break_the_others(database, distribution):
    shop, gone = distribution("shop", orders=ORDERS), distribution("is-gone", half=ORDERS_2)
    await upgrade(database, migrations=[shop, gone])
    more = distribution("shop", orders=ORDERS, notes=NOTES)  # its next release
    applied = await upgrade(database, migrations=[more])
    assert [item.revision for item in applied] == ["0002"]
    last = (await status(database, migrations=[more]))[-1]
    assert (last.distribution, last.current, last.state) == ("is-gone", "0001", "not installed")
    await check(database, migrations=[more])
    assert "more_orders" in await tables(database)


ORDERS_2 = ORDERS.replace('"orders"', '"more_orders"')


async def test_a_failed_migration_leaves_the_database_as_it_was(database, distribution):
    first = distribution("first", orders=ORDERS)
    await upgrade(database, migrations=[first])
    before = await snapshot(database)
    shop = distribution("shop", orders=ORDERS_2, broken=BROKEN)
    with pytest.raises(MigrationError) as caught:
        await upgrade(database, migrations=[first, shop])
    assert caught.value.message.startswith("migration 0002 of shop failed: ")
    assert caught.value.details == {"distribution": "shop", "revision": "0002"}
    assert "nowhere" in str(caught.value)
    # The migration before it, of the same run, is not there either.
    assert await snapshot(database) == before
    # And the database is usable, with foreign keys as ever.
    await database.execute("INSERT INTO orders (id) VALUES (7)")
    repaired = distribution("shop", orders=ORDERS_2, notes=NOTES)
    await upgrade(database, migrations=[first, repaired])
    with pytest.raises(ConstraintViolationError):
        await database.execute("INSERT INTO notes (id, order_id) VALUES (2, 99)")


async def test_a_replaced_table_keeps_the_rows_that_refer_to_it(database, distribution):
    shop = distribution("shop", orders=ORDERS, notes=NOTES)
    await upgrade(database, migrations=[shop])
    await upgrade(
        database, migrations=[distribution("shop", orders=ORDERS, notes=NOTES, total=REBUILT)]
    )
    assert (await database.execute_query("SELECT id, total FROM orders")).rows == [
        {"id": 1, "total": 0}
    ]
    # With foreign keys on, DROP TABLE orders would have emptied it.
    assert (await database.execute_query("SELECT id FROM notes")).row_count == 1


async def test_a_migration_that_leaves_an_orphan_is_refused(distribution, tmp_path):
    orphan = """
        \"\"\"Forgets the notes.\"\"\"
        from alembic import op

        def upgrade() -> None:
            op.execute("DELETE FROM orders")

        def downgrade() -> None:
            pass
    """
    async with Database(f"sqlite:///{tmp_path}/a.db") as database:
        await upgrade(database, migrations=[distribution("shop", orders=ORDERS, notes=NOTES)])
        careless = distribution("shop", orders=ORDERS, notes=NOTES, orphan=orphan)
        with pytest.raises(ConstraintViolationError, match="row of notes would refer to"):
            await upgrade(database, migrations=[careless])
        assert (await database.execute_query("SELECT id FROM orders")).row_count == 1


async def test_a_database_newer_than_the_code_is_refused(database, distribution):
    await upgrade(database, migrations=[distribution("shop", orders=ORDERS, notes=NOTES)])
    before = await snapshot(database)
    old = distribution("shop", orders=ORDERS)
    for work in (
        upgrade(database, migrations=[old]),
        downgrade(database, "base", only="shop", migrations=[old]),
        check(database, migrations=[old]),
    ):
        with pytest.raises(DatabaseTooNewError) as caught:
            await work
        assert "has revision 0002 of shop" in caught.value.message
        assert "install the newer shop" in caught.value.hint
        assert caught.value.details == {
            "distribution": "shop",
            "database": "0002",
            "installed": "0001",
        }
    assert [item.state for item in await status(database, migrations=[old])] == ["too new"]
    assert await snapshot(database) == before


async def test_a_cancelled_migration_is_rolled_back(database, distribution):
    endless = """
        \"\"\"Counts for ever.\"\"\"
        from alembic import op

        def upgrade() -> None:
            op.execute("CREATE TABLE begun (id INTEGER)")
            op.execute(
                "INSERT INTO begun WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
                " SELECT max(i) FROM n"
            )

        def downgrade() -> None:
            op.execute("DROP TABLE begun")
    """
    shop = distribution("shop", orders=ORDERS, endless=endless)
    begun, loop = anyio.Event(), asyncio.get_running_loop()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            lambda: upgrade(
                database,
                migrations=[shop],
                tell=lambda _: loop.call_soon_threadsafe(begun.set),
            )
        )
        await begun.wait()
        tasks.cancel_scope.cancel()
    assert await tables(database) == []
    assert await upgrade(database, migrations=[distribution("shop", orders=ORDERS)]) != []


async def test_tasks_that_upgrade_at_once_do_it_once(config, distribution):
    shop = distribution("shop", orders=ORDERS, notes=NOTES)
    applied = []

    async def start():
        async with Database(config) as database:
            applied.extend(await upgrade(database, migrations=[shop]))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(start)
    assert [item.revision for item in applied] == ["0001", "0002"]


async def test_it_is_not_done_inside_a_transaction(database):
    async with database.transaction():
        with pytest.raises(TransactionScopeError, match="changing tables"):
            await upgrade(database)
    assert await tables(database) == []


@pytest.mark.parametrize("policy", list(Migrate))
async def test_the_start_does_what_the_setting_says(config, policy):
    settings = SqlConfig(url=config.url, migrate=policy)
    module = SqlModule.configure(settings)
    is_sqlite = config.url.startswith("sqlite")
    if policy is Migrate.ALWAYS or (policy is Migrate.AUTO and is_sqlite):
        async with boot(module) as app:
            assert (await app.health_check()).is_healthy()
            await check(await app.container.resolve(Database))
        return
    with pytest.raises(BaseException) as caught:
        async with boot(module):
            pass
    assert "run: lexigram db upgrade" in _texts(caught.value)
    assert DatabaseOutdatedError.code in _texts(caught.value)
    async with Database(config) as database:
        assert await tables(database) == []
        await upgrade(database)
    async with boot(SqlModule.configure(settings)) as app:
        assert (await app.health_check()).is_healthy()


def _texts(error):
    inner = (*getattr(error, "exceptions", ()), error.__cause__)
    return "\n".join([str(error), *(_texts(item) for item in inner if item is not None)])


async def test_the_script_does_what_upgrade_does(database):
    await upgrade(database)
    by_upgrade = await snapshot(database)
    for item in reversed(INSTALLED):
        await downgrade(database, "base", only=item.distribution)
        await database.execute(f"DROP TABLE {item.version_table}")
    script = await upgrade_sql(database.dialect)
    assert script.endswith("COMMIT;")
    body = script.partition("BEGIN IMMEDIATE;")[2] or script.partition("BEGIN;")[2]

    def play(connection):
        for statement in body.removesuffix("COMMIT;").split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)

    await database.restructure(play)
    assert await snapshot(database) == by_upgrade
