"""``lexigram db`` on a SQLite file, as it answers people and programs."""

import sqlite3

import pytest

from lexigram.sql.migrate import installed_migrations

TOTAL = sum(len(item.files) for item in installed_migrations())

APP = """
    from lexigram.app import Application
    from lexigram.sql import SqlConfig, SqlModule

    app = Application("shop", modules=[SqlModule.configure(SqlConfig(url="sqlite:///shop.db"))])
    plain = Application("plain", modules=[SqlModule])
"""


def tables(file):
    with sqlite3.connect(file) as connection:
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        names = {name for (name,) in found}
    connection.close()
    return names


def test_upgrade_tells_what_it_does_and_a_second_time_does_nothing(lex, folder):
    done = lex("db", "upgrade")
    assert (done.code, done.err) == (0, "")
    first, *_, last = done.out.splitlines()
    assert (
        first == f"1/{TOTAL} lexigram 0004  Start of the chain: locks, cache, schedules and jobs."
    )
    assert last == f"migrations run: {TOTAL}"
    assert "lexigram_locks" in tables(folder / "lexigram.db")
    assert lex("db", "upgrade").out == "the database is up to date\n"
    assert lex("db", "upgrade", "--json").data == {"applied": []}


def test_status_makes_no_file_and_exits_with_4_until_all_is_up_to_date(lex, folder):
    before = lex("db", "status")
    assert before.code == 4
    assert before.out.startswith("there is no database file yet\n")
    assert not (folder / "lexigram.db").exists()
    assert lex("db", "status", "--json").data["up_to_date"] is False
    lex("db", "upgrade")
    after = lex("db", "status", "--json")
    assert after.code == 0
    assert after.data["up_to_date"] is True
    core = after.data["distributions"][0]
    head = installed_migrations()[0].head
    assert core == {
        "distribution": "lexigram",
        "current": head,
        "head": head,
        "state": "up to date",
        "pending": [],
        "installed": True,
    }


def test_status_shows_a_removed_distribution_and_a_newer_database(lex, folder):
    lex("db", "upgrade")
    with sqlite3.connect(folder / "lexigram.db") as connection:
        connection.execute("CREATE TABLE migrations_of_lexigram_gone (version_num VARCHAR(32))")
        connection.execute("INSERT INTO migrations_of_lexigram_gone VALUES ('0003')")
    connection.close()
    done = lex("db", "status")
    assert done.code == 0
    assert done.out.splitlines()[-1].split("  ")[0] == "lexigram-gone"
    assert "not installed" in done.out.splitlines()[-1]
    with sqlite3.connect(folder / "lexigram.db") as connection:
        connection.execute("UPDATE migrations_of_lexigram SET version_num = '9999'")
    connection.close()
    assert (lex("db", "status").code, "too new" in lex("db", "status").out) == (4, True)
    refused = lex("db", "upgrade", "--json")
    assert refused.code == 1
    assert refused.data["error"]["code"] == "LEX_ERR_DB_122"


def test_history_needs_no_database(lex, folder):
    done = lex("db", "history", "--json")
    assert done.code == 0
    assert len(done.data["migrations"]) == TOTAL
    assert done.data["migrations"][0]["revision"] == next(iter(installed_migrations()[0].files))
    only = lex("db", "history", "--only", "lexigram")
    assert all(line.startswith("lexigram ") for line in only.out.splitlines()[1:])
    assert list(folder.iterdir()) == []


def test_downgrade_asks_before_rows_are_lost(lex, folder, monkeypatch):
    lex("db", "upgrade", "--only", "lexigram")
    answers = iter([False, True])
    monkeypatch.setattr("typer.confirm", lambda *_, **__: next(answers))
    refused = lex("db", "downgrade", "base", "--only", "lexigram")
    assert refused.code == 1
    assert "loses its rows" in refused.err
    assert "lexigram_locks" in tables(folder / "lexigram.db")
    done = lex("db", "downgrade", "base", "--only", "lexigram")
    assert done.code == 0
    assert done.out.splitlines()[-1] == f"migrations undone: {len(installed_migrations()[0].files)}"
    assert "lexigram_locks" not in tables(folder / "lexigram.db")


def test_a_program_says_yes_beforehand(lex, folder):
    lex("db", "upgrade", "--only", "lexigram")
    refused = lex("db", "downgrade", "base", "--only", "lexigram", "--json")
    assert (refused.code, refused.data["error"]["hint"]) == (2, "--yes says that this is wanted")
    done = lex("db", "downgrade", "base", "--only", "lexigram", "--yes", "--json")
    assert done.code == 0
    assert done.data["undone"][-1]["revision"] == next(iter(installed_migrations()[0].files))
    again = lex("db", "downgrade", "base", "--only", "lexigram", "--yes")
    assert again.out == "lexigram is at base already\n"


def test_a_downgrade_without_a_file_makes_none(lex, folder):
    done = lex("db", "downgrade", "base", "--only", "lexigram", "--yes")
    assert done.code == 2
    assert "there is no database file" in done.err
    assert list(folder.iterdir()) == []


def test_sql_prints_a_script_that_sqlite_accepts_and_opens_no_database(lex, folder):
    done = lex("db", "sql")
    assert done.code == 0
    assert list(folder.iterdir()) == []
    connection = sqlite3.connect(folder / "by-script.db")
    connection.executescript(done.out)
    connection.close()
    lex("db", "upgrade")
    assert tables(folder / "by-script.db") == tables(folder / "lexigram.db")
    script = lex("db", "sql", "--url", "postgresql://nobody@nowhere/nothing", "--json").data
    assert script["dialect"] == "postgresql"
    assert "DOUBLE PRECISION" in script["sql"]
    lexigram = installed_migrations()[0]
    rest = lex("db", "sql", "--only", "lexigram", "--from", lexigram.head)
    assert "CREATE TABLE" not in rest.out


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("upgrade", "--only", "nobody"), "no installed distribution 'nobody' has migrations"),
        (("downgrade", "0777", "--only", "lexigram", "--yes"), "lexigram has no revision '0777'"),
        (("downgrade", "base", "--yes"), "Missing option '--only'"),
        (("sql", "--from", "0001"), "--from needs --only"),
        (("upgrade", "--url", "mysql://h/n"), "not a supported database"),
        (("status", "--url", "nonsense"), "is not a database URL"),
    ],
)
def test_a_wrong_command_line_exits_with_2(lex, folder, arguments, fact):
    lex("db", "upgrade")
    done = lex("db", *arguments)
    assert done.code == 2
    assert fact in done.err


def test_the_database_is_that_of_the_application_or_of_the_configuration(
    lex, folder, write, monkeypatch
):
    write("shop.py", APP)
    assert lex("db", "upgrade", "--app", "shop:app").code == 0
    assert (folder / "shop.db").exists()
    monkeypatch.setenv("LEX_SQL__URL", "sqlite:///from_variable.db")
    assert lex("db", "upgrade", "--app", "shop:plain").code == 0
    assert (folder / "from_variable.db").exists()
    monkeypatch.setenv("LEX_SQL__URL", "sqlite:///without_app.db")
    assert lex("db", "upgrade").code == 0
    assert (folder / "without_app.db").exists()
    assert lex("db", "upgrade", "--url", "sqlite:///given.db").code == 0
    assert (folder / "given.db").exists()
    assert not (folder / "lexigram.db").exists()


def test_a_failed_migration_exits_with_1_and_says_which(lex, folder):
    with sqlite3.connect(folder / "lexigram.db") as connection:
        connection.execute("CREATE TABLE lexigram_locks (mine INTEGER)")
    connection.close()
    done = lex("db", "upgrade")
    assert done.code == 1
    assert "[LEX_ERR_DB_120] migration 0004 of lexigram failed" in done.err
    assert tables(folder / "lexigram.db") == {"lexigram_locks"}
