"""What installed distributions say about their migrations, and what is refused."""

import importlib
from importlib.metadata import EntryPoint
from itertools import count

import pytest

from lexigram.sql import MigrationSetupError
from lexigram.sql.migrate import Migrations, history, installed, installed_migrations, upgrade_sql
from lexigram.sql.migrate.fresh import metadata_of
from lexigram.sql.migrate.installed import in_order, select

_names = count(1)

SOUND = "def upgrade(): ...\ndef downgrade(): ...\n"


def record(name, *requires):
    return Migrations(distribution=name, versions="lexigram.migrations.versions", requires=requires)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """``folder({"0001_a.py": text})`` is the name of a package with these files."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(files):
        package = f"versions_{next(_names)}"
        (tmp_path / package).mkdir()
        for name, text in files.items():
            (tmp_path / package / name).write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        return package

    return make


def shop(package):
    return Migrations(distribution="shop", versions=package)


def test_the_core_comes_first_then_what_is_required_then_names():
    records = [record("c", "b"), record("a"), record("b"), record("lexigram")]
    names = [item.distribution for item in in_order(records)]
    assert names == ["lexigram", "a", "b", "c"]
    assert in_order(reversed(records)) == in_order(records)


def test_only_one_brings_what_it_requires_at_any_distance():
    records = in_order([record("c", "b"), record("b", "a"), record("a"), record("z")])
    assert [item.distribution for item in select(records, "c")] == ["a", "b", "c"]
    assert select(records, None) == records
    with pytest.raises(MigrationSetupError, match="no installed distribution 'x'") as caught:
        select(records, "x")
    assert caught.value.hint == "there are: a, z, b, c"


def test_a_cycle_is_named():
    with pytest.raises(MigrationSetupError, match="require each other's migrations: ") as caught:
        in_order([record("a", "b"), record("b", "a")])
    assert "a → b → a" in caught.value.message or "b → a → b" in caught.value.message


def test_a_requirement_that_is_not_there_is_named():
    with pytest.raises(MigrationSetupError, match="shop requires the migrations of till") as caught:
        in_order([record("shop", "till")])
    assert "install till" in caught.value.hint


def test_the_same_distribution_twice_is_refused():
    with pytest.raises(MigrationSetupError, match="shop offers its migrations twice"):
        in_order([record("shop"), record("shop")])


def test_the_version_table_tells_the_distribution():
    assert record("Lexigram.Queue-x").version_table == "migrations_of_lexigram_queue_x"
    for name in ("", "x" * 50, "a b", "a;b"):
        with pytest.raises(MigrationSetupError, match="cannot be the distribution"):
            record(name)


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        ("no_such_module:MIGRATIONS", "cannot be loaded: No module named 'no_such_module'"),
        ("lexigram.migrations:NOTHING", "cannot be loaded: "),
        ("lexigram.sql:SqlConfig", "is no Migrations record"),
    ],
)
def test_a_broken_entry_point_is_named(monkeypatch, value, fact):
    point = EntryPoint(name="shop", value=value, group=installed.GROUP)
    monkeypatch.setattr(installed, "entry_points", lambda group: [point])
    with pytest.raises(MigrationSetupError) as caught:
        installed_migrations.__wrapped__()
    assert value in caught.value.message
    assert fact in caught.value.message
    assert caught.value.hint


def test_the_numbers_of_the_files_are_the_chain(folder):
    found = shop(folder({"0002_b.py": SOUND, "0001_a.py": SOUND, "__init__.py": "", "x.txt": ""}))
    assert list(found.files) == ["0001", "0002"]
    assert found.head == "0002"
    assert shop(folder({})).head is None


@pytest.mark.parametrize(
    ("files", "fact"),
    [
        ({"first.py": SOUND}, "first.py of shop is not named NNNN_what.py"),
        ({"0001_a.py": SOUND, "0001_b.py": SOUND}, "0001_b.py of shop has a number twice"),
    ],
)
def test_a_file_without_a_number_of_its_own_is_refused(folder, files, fact):
    with pytest.raises(MigrationSetupError, match="shop") as caught:
        shop(folder(files)).head
    assert caught.value.message.endswith(fact)
    assert "next free number" in caught.value.hint


def test_a_folder_that_is_not_there_is_named():
    for package in ("no_such_package.versions", "lexigram.sql.config"):
        with pytest.raises(MigrationSetupError, match=f"{package}, which is no package"):
            shop(package).head


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("import no_such_module", "migration 0001 of shop cannot be imported"),
        ("def upgrade(): ...", "has no function downgrade()"),
        (SOUND + "revision = '7'", "says revision = '7', and its name says '0001'"),
        (SOUND + "down_revision = '0000'", "says down_revision = '0000'"),
    ],
)
async def test_a_file_that_is_no_migration_is_refused(folder, text, fact):
    with pytest.raises(MigrationSetupError) as caught:
        await history(migrations=[shop(folder({"0001_a.py": text}))])
    assert fact in caught.value.message
    assert caught.value.hint


@pytest.mark.anyio
async def test_the_history_is_in_order_with_titles(folder):
    package = folder({"0001_a.py": '"""First.\n\nMore."""\n' + SOUND, "0002_b.py": SOUND})
    found = await history(migrations=[shop(package)])
    assert [(item.revision, item.title) for item in found] == [("0001", "First."), ("0002", "")]
    assert await history(migrations=[shop(folder({}))]) == []


@pytest.mark.anyio
async def test_the_script_begins_after_a_revision(folder):
    text = "from alembic import op\ndef upgrade(): op.execute('SELECT {}')\ndef downgrade(): ...\n"
    package = folder({"0001_a.py": text.format(1), "0002_b.py": text.format(2)})
    whole = await upgrade_sql("postgresql", migrations=[shop(package)])
    rest = await upgrade_sql("postgresql", only="shop", start="0001", migrations=[shop(package)])
    assert "SELECT 1;" in whole
    assert "SELECT 2;" in whole
    assert "SELECT 1;" not in rest
    assert "SELECT 2;" in rest
    assert "UPDATE migrations_of_shop SET version_num='0002'" in rest
    with pytest.raises(MigrationSetupError, match="shop has no revision '0009'"):
        await upgrade_sql("sqlite", only="shop", start="0009", migrations=[shop(package)])


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        ("no_such_module:metadata", "cannot be loaded"),
        ("lexigram.sql.locks.tables:nothing", "cannot be loaded"),
        ("lexigram.sql.locks.tables", "cannot be loaded"),
        ("lexigram.sql.locks.tables:locks", "is no sqlalchemy.MetaData"),
    ],
)
def test_metadata_that_is_not_there_is_named(path, fact):
    item = Migrations(
        distribution="shop", versions="lexigram.migrations.versions", metadata=(path,)
    )
    with pytest.raises(MigrationSetupError, match="named as metadata by shop") as caught:
        metadata_of(item)
    assert path in caught.value.message
    assert fact in caught.value.message
