"""A SQLite file that is deleted or replaced while it is open: nothing reports success any more."""

import shutil
import sqlite3

import anyio
import pytest

from lexigram.contracts.core.health import HealthStatus
from lexigram.sql import Database, SqlConfig
from lexigram.sql.di.provider import SqlProvider
from lexigram.sql.errors import DatabaseError, DatabaseFileLostError, is_file_lost
from lexigram.sql.sqlite import files

pytestmark = pytest.mark.anyio


@pytest.fixture
def eager(monkeypatch):
    """The side files are checked for each transaction too."""
    monkeypatch.setattr(files, "_SIDE_SECONDS", 0.0)


@pytest.fixture
async def database(tmp_path):
    async with Database(f"sqlite:///{tmp_path}/app.db") as opened:
        await opened.execute("CREATE TABLE t (x INTEGER)")
        yield opened


@pytest.fixture
def file(tmp_path):
    return tmp_path / "app.db"


def insert():
    yield "INSERT INTO t VALUES (?)", (1,)


async def interactive(database):
    async with database.transaction() as transaction:
        await transaction.execute("INSERT INTO t VALUES (1)")


DOORS = {
    "execute": lambda database: database.execute("INSERT INTO t VALUES (1)"),
    "insert": lambda database: database.execute_insert("t", {"x": 1}),
    "run": lambda database: database.run(
        lambda connection: connection.exec_driver_sql("INSERT INTO t VALUES (1)")
    ),
    "run_steps": lambda database: database.run_steps(insert),
    "transaction": interactive,
    "restructure": lambda database: database.restructure(
        lambda connection: connection.exec_driver_sql("CREATE TABLE u (x)")
    ),
    "query": lambda database: database.execute_query("SELECT 1"),
    "read": lambda database: database.read(lambda _: None),
}


def delete(file):
    file.unlink()


def rename(file):
    file.rename(file.with_name("moved.db"))


def restore(file):
    """As from a backup: another file takes the place, without the side files."""
    backup = file.with_name("backup.db")
    with sqlite3.connect(backup) as connection:
        connection.execute("CREATE TABLE t (x INTEGER)")
    connection.close()
    backup.replace(file)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize("lose", [delete, rename, restore])
async def test_nothing_reports_success_on_a_file_that_is_lost(database, file, door, lose):
    lose(file)
    with pytest.raises(DatabaseFileLostError) as raised:
        await door(database)
    event = "replaced by another file" if lose is restore else "deleted"
    assert raised.value.message == f"{file} was {event} while it was open"
    assert raised.value.details["file"] == str(file)
    assert "start them again" in raised.value.hint


async def test_a_folder_that_is_deleted_takes_the_file_with_it(database, file):
    shutil.rmtree(file.parent)
    with pytest.raises(DatabaseFileLostError, match="was deleted while it was open"):
        await database.execute("INSERT INTO t VALUES (1)")


async def test_a_file_lost_within_a_transaction_fails_its_commit(database, file):
    with pytest.raises(DatabaseFileLostError):
        async with database.transaction() as transaction:
            await transaction.execute("INSERT INTO t VALUES (1)")
            restore(file)
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
    connection.close()


async def test_a_file_that_is_back_at_its_place_is_used_again(database, file):
    rename(file)
    with pytest.raises(DatabaseFileLostError):
        await database.execute("INSERT INTO t VALUES (1)")
    file.with_name("moved.db").rename(file)
    await database.execute("INSERT INTO t VALUES (2)")
    assert (await database.execute_query("SELECT x FROM t")).rows == [{"x": 2}]


@pytest.mark.parametrize("end", ["-wal", "-shm"])
@pytest.mark.usefixtures("eager")
async def test_a_side_file_that_is_lost_is_detected(database, file, end):
    side = file.with_name(f"{file.name}{end}")
    await database.execute("INSERT INTO t VALUES (1)")
    side.unlink()
    with pytest.raises(DatabaseFileLostError) as raised:
        await database.execute("INSERT INTO t VALUES (1)")
    assert raised.value.details["file"] == str(side)


@pytest.mark.usefixtures("eager")
async def test_a_checkpoint_and_another_connection_lose_nothing(database, file):
    for number in range(20):
        await database.execute("INSERT INTO t VALUES (?)", [number])
        other = sqlite3.connect(file)
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
    found = await database.execute_query("SELECT count(*) AS n FROM t")
    assert found.rows == [{"n": 20}]


async def test_a_link_to_the_file_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "app.db")
    async with Database(f"sqlite:///{tmp_path}/link.db") as database:
        await database.execute("CREATE TABLE t (x)")
        (tmp_path / "other.db").touch()
        (tmp_path / "link.db").unlink()
        (tmp_path / "link.db").symlink_to(tmp_path / "other.db")
        with pytest.raises(DatabaseFileLostError, match="replaced"):
            await database.execute("INSERT INTO t VALUES (1)")


async def test_a_folder_that_cannot_be_read_any_more_is_named_with_its_reason(
    database, file, monkeypatch
):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(files.os, "stat", refuse)
    with pytest.raises(DatabaseFileLostError, match=r"cannot be reached any more: Permission"):
        await database.execute("INSERT INTO t VALUES (1)")


async def test_a_database_in_memory_has_no_file_to_lose():
    async with Database("sqlite://") as database:
        await database.execute("CREATE TABLE t (x)")


async def test_health_is_unhealthy_with_the_reason(tmp_path, file):
    provider = SqlProvider(SqlConfig(url=f"sqlite:///{file}"))
    provider._database = Database(provider.config)
    async with provider._database:
        assert (await provider.health_check()).status is HealthStatus.HEALTHY
        file.unlink()
        with anyio.fail_after(5):
            result = await provider.health_check()
    assert result.status is HealthStatus.UNHEALTHY
    assert result.error == f"{file} was deleted while it was open"


def test_a_group_of_failures_with_a_lost_file_is_one():
    lost = DatabaseError("the store failed")
    lost.__cause__ = DatabaseFileLostError("app.db was deleted")
    assert is_file_lost(ExceptionGroup("tasks", [ExceptionGroup("inner", [lost]), OSError()]))
    assert not is_file_lost(ExceptionGroup("tasks", [OSError()]))
