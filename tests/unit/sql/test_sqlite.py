import asyncio
import sqlite3
import subprocess
import sys
import tempfile
import threading
from decimal import Decimal
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from sqlalchemy import text

from lexigram.contracts.core import HealthStatus
from lexigram.contracts.data import DatabaseProviderProtocol
from lexigram.sql import (
    ConstraintViolationError,
    Database,
    DatabaseAccessError,
    DatabaseError,
    DatabaseLockedError,
    DatabaseUrlError,
    DiskFullError,
    SqlConfig,
    SqlModule,
    SqlProvider,
    StatementTimeoutError,
    Synchronous,
    TransactionScopeError,
    TransactionTimeoutError,
    UniqueViolationError,
)
from lexigram.sql.steps import Many
from lexigram.testing import boot, wait_until

pytestmark = pytest.mark.anyio

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture(params=["file", "memory"])
async def db(request, tmp_path):
    url = f"sqlite:///{tmp_path}/a.db" if request.param == "file" else "sqlite://"
    async with Database(SqlConfig(url=url, readers=1)) as database:
        await database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
        yield database


@pytest.fixture
def file_config(tmp_path):
    def make(**settings):
        return SqlConfig(url=f"sqlite:///{tmp_path}/a.db", **settings)

    return make


async def count(database):
    return (await database.execute_query("SELECT count(*) AS n FROM t")).rows[0]["n"]


def add(number):
    return lambda connection: connection.execute(
        text("INSERT INTO t VALUES (:i, 'x')"), {"i": number}
    )


async def test_the_four_statements_of_the_contract(db):
    assert isinstance(db, DatabaseProviderProtocol)
    assert (await db.execute_insert("t", {"id": 1, "name": "a"})).row_count == 1
    await db.execute_insert("t", {"id": 2, "name": "b"})
    assert (await db.execute("UPDATE t SET name = ? WHERE id > ?", ("c", 0))).row_count == 2
    found = await db.execute_query("SELECT * FROM t ORDER BY id")
    assert found.rows == [{"id": 1, "name": "c"}, {"id": 2, "name": "c"}]
    assert found.row_count == 2
    assert (await db.execute_delete("t", "id = ?", (1,))).row_count == 1
    assert (await db.execute("INSERT INTO t VALUES (7, 'r') RETURNING id")).rows == [{"id": 7}]


async def test_run_commits_what_the_function_did_and_returns_its_value(db):
    thread = await db.run(lambda c: (add(1)(c), threading.current_thread().name)[1])
    assert thread == "lexigram-sql-writer"
    assert await count(db) == 1


async def test_run_rolls_back_when_the_function_raises(db):
    def fail(connection):
        add(1)(connection)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await db.run(fail)
    assert await count(db) == 0


async def test_a_function_that_raises_stop_iteration_does_not_hang(db):
    with pytest.raises(RuntimeError, match="StopIteration"):
        await db.run(lambda _: next(iter(())))


async def test_a_function_may_not_end_its_transaction(db):
    def fn(connection):
        add(1)(connection)
        connection.commit()

    with pytest.raises(TransactionScopeError, match="ended its transaction itself"):
        await db.run(fn)
    assert await count(db) == 0


async def test_an_async_function_is_refused(db):
    async def fn(connection):
        add(1)(connection)

    with pytest.raises(DatabaseError, match="is a plain one"):
        await db.run(fn)


async def test_steps_run_in_one_transaction(db):
    def steps():
        inserted = yield "INSERT INTO t VALUES (?, ?)", (1, "a")
        found = yield "SELECT name FROM t", ()
        return inserted.row_count, found.rows

    assert await db.run_steps(steps) == (1, [{"name": "a"}])

    def failing():
        yield "INSERT INTO t VALUES (?, ?)", (2, "a")
        raise KeyError

    with pytest.raises(KeyError):
        await db.run_steps(failing)
    assert await count(db) == 1


async def test_a_step_with_many_values_is_done_for_each_of_them(db):
    def steps():
        done = yield "INSERT INTO t VALUES (?, ?)", Many([(1, "a"), (2, "b")])
        yield "INSERT INTO t VALUES (:id, :name)", Many([{"id": 3, "name": "c"}])
        return done.row_count

    assert await db.run_steps(steps) == 2
    assert await count(db) == 3

    def twice():
        yield "INSERT INTO t VALUES (?, ?)", Many([(8, "a"), (8, "b")])

    with pytest.raises(UniqueViolationError):
        await db.run_steps(twice)
    assert await count(db) == 3


async def test_steps_join_a_transaction_and_take_the_values_statements_take(db):
    def steps():
        yield "INSERT INTO t VALUES (?, ?)", (1, Decimal("1.10"))
        return (yield "SELECT name FROM t", ()).first()

    with pytest.raises(KeyError):
        async with db.transaction():
            assert await db.run_steps(steps) == {"name": "1.10"}
            raise KeyError
    assert await count(db) == 0


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_steps_may_not_end_their_transaction(db, end):
    def steps():
        yield end, ()

    with pytest.raises(TransactionScopeError, match="ended its transaction itself"):
        await db.run_steps(steps)
    await db.execute_insert("t", {"id": 1})
    assert await count(db) == 1


async def test_a_savepoint_inside_run_undoes_its_part_only(db):
    def fn(connection):
        add(1)(connection)
        with connection.begin_nested() as savepoint:
            add(2)(connection)
            savepoint.rollback()

    await db.run(fn)
    assert await count(db) == 1


async def test_a_statement_that_begins_a_transaction_is_refused(db):
    with pytest.raises(TransactionScopeError, match="began a transaction"):
        await db.execute("BEGIN")
    await db.execute_insert("t", {"id": 1})


async def test_a_transaction_sees_its_own_writes_and_commits_at_its_end(db):
    async with db.transaction() as tx:
        await db.execute_insert("t", {"id": 1})
        await tx.execute_insert("t", {"id": 2})
        assert (await tx.execute_delete("t", "id = ?", (2,))).row_count == 1
        assert len((await tx.execute_query("SELECT * FROM t")).rows) == 1
        assert await count(db) == 1
        await db.run(add(3))
        assert db.in_transaction
    assert not db.in_transaction
    assert await count(db) == 2


async def test_an_exception_rolls_the_transaction_back(db):
    with pytest.raises(KeyError):
        async with db.transaction():
            await db.execute_insert("t", {"id": 1})
            raise KeyError
    assert await count(db) == 0


async def test_a_nested_transaction_joins_the_outer_one(db):
    with pytest.raises(KeyError):
        async with db.transaction() as outer:
            async with db.transaction() as inner:
                assert inner is outer
                await db.execute_insert("t", {"id": 1})
            raise KeyError
    assert await count(db) == 0


async def test_a_reader_does_not_wait_for_an_open_transaction(file_config):
    async with Database(file_config()) as db:
        await db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
        written, read = anyio.Event(), anyio.Event()

        async def write():
            async with db.transaction():
                await db.execute_insert("t", {"id": 1})
                written.set()
                await read.wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await written.wait()
            assert await count(db) == 0
            assert await db.read(lambda c: c.execute(text("SELECT count(*) FROM t")).scalar()) == 0
            assert await db.read_steps(look) == [{"n": 0}, {"n": 0}]
            read.set()
        assert await count(db) == 1


async def test_a_reader_cannot_write(file_config):
    async with Database(file_config()) as db:
        with pytest.raises(DatabaseAccessError):
            await db.execute_query("CREATE TABLE t (id)")
        await db.execute("CREATE TABLE t (id, name)")
        with pytest.raises(DatabaseAccessError):
            await db.read_steps(insert_one)


def look():
    first = yield "SELECT count(*) AS n FROM t", ()
    second = yield "SELECT count(*) AS n FROM t", ()
    return first.rows + second.rows


def insert_one():
    yield "INSERT INTO t VALUES (?, ?)", (1, "a")


async def test_a_child_task_cannot_use_the_transaction(db):
    async with db.transaction() as tx:
        for use in (lambda: db.execute("SELECT 1"), lambda: db.run(add(1)), lambda: tx.run(add(1))):
            with pytest.raises(TransactionScopeError, match="belongs to the task"):
                await asyncio.create_task(use())
    assert await count(db) == 0


async def test_a_transaction_cannot_be_used_after_its_end(db):
    ended = anyio.Event()

    async def late():
        await ended.wait()
        await db.execute("SELECT 1")

    async with db.transaction() as tx:
        task = asyncio.create_task(late())
    ended.set()
    with pytest.raises(TransactionScopeError, match="has ended"):
        await task
    with pytest.raises(TransactionScopeError, match="has ended"):
        await tx.execute("SELECT 1")
    await db.execute("SELECT 1")


async def test_waiting_for_the_writer_one_holds_raises_at_once(file_config):
    async with Database(file_config()) as one, Database(file_config()) as two, one.transaction():
        with pytest.raises(TransactionScopeError, match="wait for itself"):
            await two.run(lambda _: None)


async def test_other_tasks_wait_for_the_end_of_a_transaction(db):
    async with anyio.create_task_group() as tasks:
        opened = anyio.Event()

        async def first():
            async with db.transaction():
                opened.set()
                await db.execute_insert("t", {"id": 1})
                await anyio.lowlevel.checkpoint()
                await db.execute("UPDATE t SET name = 'first'")

        async def second():
            await opened.wait()
            await db.execute("UPDATE t SET name = name || ' second'")

        tasks.start_soon(second)
        tasks.start_soon(first)
    assert (await db.execute_query("SELECT name FROM t")).rows == [{"name": "first second"}]


async def test_a_cancelled_task_rolls_its_transaction_back(db):
    inside = anyio.Event()

    async def work():
        async with db.transaction():
            await db.execute_insert("t", {"id": 1})
            inside.set()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await inside.wait()
        tasks.cancel_scope.cancel()
    assert await count(db) == 0
    await db.execute_insert("t", {"id": 1})


async def test_cancelling_a_long_statement_stops_it_and_rolls_back(db):
    started = threading.Event()

    def fn(connection):
        add(1)(connection)
        started.set()
        connection.execute(text(ENDLESS)).all()

    task = asyncio.create_task(db.run(fn))
    await wait_until(started.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await count(db) == 0


async def test_work_cancelled_before_its_turn_is_never_done(db):
    async with db.transaction():
        empty = __import__("contextvars").Context()
        waiting = asyncio.get_running_loop().create_task(db.run(add(1)), context=empty)
        await anyio.lowlevel.checkpoint()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await count(db) == 0


async def test_a_statement_that_runs_too_long_is_stopped(file_config):
    async with Database(file_config(statement_timeout=0.05)) as db:
        for use in (db.execute, db.execute_query):
            with pytest.raises(StatementTimeoutError, match=r"more than 0.05 s"):
                await use(ENDLESS)
        with pytest.raises(StatementTimeoutError):
            await db.run(lambda c: c.execute(text(ENDLESS)).all())


async def test_a_transaction_open_too_long_is_rolled_back_and_frees_the_writer(file_config):
    async with Database(file_config(max_transaction=0.5)) as db:
        await db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
        other = sqlite3.connect(db._backend._file, timeout=5)
        with pytest.raises(TransactionTimeoutError):
            async with db.transaction():
                await db.execute_insert("t", {"id": 1})
                # another writer gets in only after the rollback
                await anyio.to_thread.run_sync(_insert_elsewhere, str(db._backend._file))
                await db.execute_insert("t", {"id": 2})
        other.close()
        assert (await db.execute_query("SELECT id FROM t")).rows == [{"id": 9}]


def _insert_elsewhere(file):
    connection = sqlite3.connect(file, timeout=10)
    connection.execute("INSERT INTO t VALUES (9, '')")
    connection.commit()
    connection.close()


async def test_a_statement_in_a_transaction_past_its_limit_is_stopped(file_config):
    async with Database(file_config(max_transaction=0.5)) as db:
        with pytest.raises(TransactionTimeoutError):
            async with db.transaction():
                await db.execute(ENDLESS)


async def test_closing_ends_open_transactions(file_config):
    db = Database(file_config())
    await db.connect()
    with pytest.raises(DatabaseError):
        async with db.transaction():
            await db.close()
            await db.execute("SELECT 1")
    with pytest.raises(DatabaseError, match="not open"):
        await db.execute("SELECT 1")
    await db.close()


async def test_a_taken_key_and_a_broken_rule_have_their_own_errors(db):
    await db.execute_insert("t", {"id": 1})
    for use in (lambda: db.execute_insert("t", {"id": 1}), lambda: db.run(add(1))):
        with pytest.raises(UniqueViolationError):
            await use()
    await db.execute("CREATE TABLE child (t INTEGER NOT NULL REFERENCES t)")
    for value in (5, None):
        with pytest.raises(ConstraintViolationError):
            await db.execute_insert("child", {"t": value})
    with pytest.raises(DatabaseError, match="syntax"):
        await db.execute("SELEKT")


@pytest.mark.parametrize("level", list(Synchronous))
async def test_the_settings_of_the_file_are_made(file_config, level):
    async with Database(file_config(synchronous=level, busy_timeout=3)) as db, db.transaction():
        pragmas = {
            name: (await db.execute(f"PRAGMA {name}")).rows[0].popitem()[1]
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        }
    expected = 1 if level is Synchronous.NORMAL else 2
    assert pragmas == {
        "journal_mode": "wal",
        "foreign_keys": 1,
        "synchronous": expected,
        "busy_timeout": 3000,
    }


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nonsense", "not a database URL"),
        ("mysql://host/name", "not a supported database"),
        ("sqlite://app.db", "has 'app.db' where"),
        ("sqlite:///app.db?mode=ro", "does not take: mode"),
        ("postgresql://host", "names no database"),
        ("postgresql://u:hunter2@host:port/name", "not a database URL"),
        ("postgresql://u:hunter2@host:99999/name", "has the port 99999"),
        ("postgresql://u:hunter2@host:-1/name", "has the port -1"),
        ("postgresql://u:hunter2@host:0/name", "has the port 0"),
        ("postgresql://u:hunter2@[::1/name", "not a database URL"),
        ("postgresql://u:hunter2\ud800@host/name", "not a database URL"),
        ("postgresql://u:hunter2@ho\0st/name", "not a database URL"),
        ("postgresql://u:hunter2@host/na%00me", "not a database URL"),
        (f"postgresql://u:hunter2@{'h' * 64}/name", "not a database URL"),
        ("postgresql://u:hunter2@../name", "not a database URL"),
        ("sqlite:///a\0b", "not a database URL"),
        ("sqlite:///\ud800", "not a database URL"),
        ("sqlite:////", "names the folder"),
    ],
)
def test_a_wrong_url_is_explained_without_its_password(url, says):
    with pytest.raises(DatabaseUrlError, match=says) as caught:
        Database(url)
    assert "hunter2" not in str(caught.value) + repr(caught.value.__cause__)
    assert caught.value.hint


def test_a_missing_driver_names_the_command_that_installs_it():
    code = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from lexigram.sql import Database, DriverMissingError\n"
        "try: Database('postgresql://localhost/a')\n"
        "except DriverMissingError as error: print(error.hint)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == 'pip install "lexigram[postgres]"'


async def test_a_file_locked_by_another_process_is_explained(file_config):
    config = file_config(busy_timeout=0.01, retry_attempts=2)
    async with Database(config) as db:
        await db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
        release = threading.Event()
        held = threading.Event()

        def hold():
            other = sqlite3.connect(db._backend._file, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            held.set()
            release.wait(10)
            other.close()

        thread = threading.Thread(target=hold)
        thread.start()
        await wait_until(held.is_set)
        for use in (lambda: db.execute_insert("t", {"id": 1}), lambda: db.run(add(1))):
            with pytest.raises(DatabaseLockedError, match=r"keeps .* locked"):
                await use()
        with pytest.raises(DatabaseLockedError):
            async with db.transaction():
                pass
        release.set()
        await anyio.to_thread.run_sync(thread.join)
        await db.run(add(1))


async def test_a_missing_folder_is_explained(tmp_path):
    with pytest.raises(DatabaseAccessError, match="folder must exist and be writable"):
        await Database(f"sqlite:///{tmp_path}/no/such/a.db").connect()


def test_a_read_only_folder_is_explained():
    code = (
        "import asyncio, os, sys, sqlite3\n"
        "from lexigram.sql import Database, DatabaseAccessError\n"
        "db = Database(f'sqlite:///{sys.argv[1]}/a.db')\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"  # root writes where it likes
        "try: asyncio.run(db.connect())\n"
        "except DatabaseAccessError as error: print(error.hint)"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        command = [sys.executable, "-c", code, folder]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "the folder must exist and be writable" in answer.stdout


async def test_a_file_that_is_no_database_is_explained(tmp_path):
    (tmp_path / "a.db").write_bytes(b"not a database at all, but long enough to be one" * 50)
    with pytest.raises(DatabaseError, match="not a sound SQLite database"):
        await Database(f"sqlite:///{tmp_path}/a.db").connect()


async def test_a_full_disk_is_explained_and_writes_nothing(db):
    pages = (await db.execute("PRAGMA page_count")).rows[0]["page_count"]
    await db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(DiskFullError, match="no room left"):
        async with db.transaction():
            await db.execute_insert("t", {"id": 1, "name": "small"})
            await db.execute_insert("t", {"id": 2, "name": "x" * 100_000})
    assert await count(db) == 0
    with pytest.raises(DiskFullError):
        await db.run(
            lambda c: c.execute(text("INSERT INTO t VALUES (3, :big)"), {"big": "x" * 100_000})
        )
    await db.execute_insert("t", {"id": 4, "name": "still works"})


async def test_after_an_error_that_rolled_back_the_rest_of_the_block_cannot_write(db):
    pages = (await db.execute("PRAGMA page_count")).rows[0]["page_count"]
    await db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(DatabaseError, match="rolled back by an error"):
        async with db.transaction():
            with pytest.raises(DiskFullError):
                await db.execute_insert("t", {"id": 2, "name": "x" * 100_000})
            await db.execute_insert("t", {"id": 3})
    assert await count(db) == 0


async def test_notify_wakes_listeners_of_the_same_object(db):
    async with db.listen("jobs") as news:
        assert await news.wait(timeout=0) is None
        await db.notify("jobs", "one")
        await db.notify("other", "no")
        await db.notify("jobs", "two")
        assert await news.wait(timeout=5) == "two"
        assert await news.wait(timeout=0) is None
    await db.notify("jobs", "nobody")


async def test_values_sqlite_does_not_know_are_stored_as_text(db):
    import datetime as dt
    import decimal
    import uuid

    day, number, ident = dt.date(2025, 1, 2), decimal.Decimal("1.10"), uuid.UUID(int=5)
    stored = (await db.execute_query("SELECT ? AS a, ? AS b, ? AS c", (day, number, ident))).rows[0]
    assert stored == {"a": "2025-01-02", "b": "1.10", "c": str(ident)}


async def test_the_stub_module_gives_an_open_database_that_reports_health():
    async with boot(SqlModule.stub()) as app:
        db = await app.container.resolve(Database)
        assert await app.container.resolve(DatabaseProviderProtocol) is db
        health = await app.health_check()
        assert health.status is HealthStatus.HEALTHY


async def test_health_is_bad_when_the_database_does_not_answer():
    provider = SqlProvider(SqlConfig(url="sqlite://"))

    class Registrar:
        def singleton(self, *_):
            pass

    await provider.register(Registrar())
    result = await provider.health_check()
    assert result.status is HealthStatus.UNHEALTHY
    assert "not open" in result.error
    await provider.boot(None)
    assert (await provider.health_check()).is_healthy()
    async with provider._database.transaction():
        context = __import__("contextvars").Context()
        check = asyncio.get_running_loop().create_task(
            provider.health_check(timeout=0.01), context=context
        )
        assert "no answer within" in (await check).error
    await provider.shutdown()


def test_the_url_is_a_secret_setting():
    config = SqlConfig(url="postgresql://u:hunter2@host/name")
    assert "hunter2" not in repr(config)
    pytest.importorskip("asyncpg")
    assert "hunter2" not in repr(Database(config))
