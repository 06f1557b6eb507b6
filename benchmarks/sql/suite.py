"""Write paths of SQLite and PostgreSQL against the plain drivers."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import Facts, Plan, Section, Target, Work, measure, snippet
from sqlalchemy import text

from lexigram.sql import Database, SqlConfig

TITLE = "SQL"
PEERS = tuple(
    name
    for name in ("sqlalchemy", "aiosqlite", "asyncpg")
    if importlib.util.find_spec(name) is not None
)
POSTGRES = os.environ.get("LEX_BENCH_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)"
INSERT = "INSERT INTO t (name) VALUES (?)"


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    yield await _sqlite(plan)
    yield await _postgres(plan)


async def _sqlite(plan: Plan) -> Section:
    folder = Path(tempfile.mkdtemp())
    skipped = []
    thread = ThreadPoolExecutor(1)
    plain = await asyncio.get_running_loop().run_in_executor(thread, _plain, folder / "plain.db")
    db = Database(f"sqlite:///{folder / 'ours.db'}")
    await db.connect()
    await db.execute(TABLE)
    insert = text("INSERT INTO t (name) VALUES (:name)")
    names = {
        "loop": asyncio.get_running_loop(),
        "thread": thread,
        "write": lambda: _write(plain),
        "db": db,
        "INSERT": INSERT,
        "core": lambda connection: connection.execute(insert, {"name": "x"}),
        "driver": lambda connection: connection.exec_driver_sql(INSERT, ("x",)),
    }
    cases = [
        snippet("sqlite3, one thread", "result = await loop.run_in_executor(thread, write)", names),
        snippet("lexigram run", "result = await db.run(core)", names),
        snippet("lexigram run, text", "result = await db.run(driver)", names),
        snippet("lexigram execute", "result = await db.execute(INSERT, ('x',))", names),
        snippet(
            "lexigram transaction",
            "async with db.transaction():\n    result = await db.execute(INSERT, ('x',))",
            names,
        ),
    ]
    targets = {
        who: Target(2.0, "sqlite3, one thread") for who in ("lexigram run", "lexigram execute")
    }
    engine = None
    try:
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'aio.db'}")
        async with engine.begin() as connection:
            await connection.execute(text("PRAGMA journal_mode = WAL"))
            await connection.execute(text(TABLE))
        names |= {"engine": engine, "insert": insert}
        cases.append(
            snippet(
                "aiosqlite engine",
                "async with engine.begin() as c:\n    result = await c.execute(insert, {'name': 'x'})",
                names,
            )
        )
        targets["lexigram run, text"] = Target(0.25, "aiosqlite engine")
    except ImportError:
        skipped.append("the aiosqlite engine (aiosqlite or greenlet is not installed)")
    work = Work("one-row transaction", "µs", "sqlite3, one thread", cases, targets)
    await measure([work], plan)
    await db.close()
    await asyncio.get_running_loop().run_in_executor(thread, plain.close)
    thread.shutdown()
    if engine is not None:
        await engine.dispose()
    shutil.rmtree(folder)
    note = "WAL, synchronous NORMAL; every write is one committed transaction of one row."
    return Section("SQLite writes", note, [work], skipped=skipped)


def _plain(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(TABLE)
    return connection


def _write(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(INSERT, ("x",))
    connection.execute("COMMIT")


async def _postgres(plan: Plan) -> Section:
    import asyncpg

    schema = f"lex_bench_{os.getpid()}_{secrets.token_hex(4)}"
    note = "One connection each, on the same machine; a single statement that commits by itself."
    try:
        raw = await asyncpg.connect(POSTGRES, timeout=5)
    except OSError:
        return Section("PostgreSQL single statements", note, [], skipped=["no server answers"])
    await raw.execute(
        f"CREATE SCHEMA {schema}; SET search_path = {schema};"
        "CREATE UNLOGGED TABLE t (id bigserial PRIMARY KEY, name text);"
        "INSERT INTO t (name) VALUES ('x')"
    )
    db = Database(SqlConfig(url=f"{POSTGRES}?search_path={schema}", pool_size=1))
    await db.connect()
    limited = await asyncpg.connect(
        POSTGRES,
        command_timeout=32,
        server_settings={"statement_timeout": "30000", "search_path": schema},
    )
    names = {"raw": raw, "limited": limited, "db": db, "INSERT": INSERT}
    works = []
    for title, ours, theirs in [
        (
            "INSERT",
            "db.execute(INSERT, ('x',))",
            "raw.fetch('INSERT INTO t (name) VALUES ($1)', 'x')",
        ),
        (
            "SELECT by key",
            "db.execute_query('SELECT * FROM t WHERE id = ?', (1,))",
            "raw.fetch('SELECT * FROM t WHERE id = $1', 1)",
        ),
    ]:
        cases = [
            snippet("asyncpg", f"result = await {theirs}", names),
            snippet(
                "asyncpg, same time limits",
                f"result = await {theirs.replace('raw', 'limited')}",
                names,
            ),
            snippet("lexigram", f"result = await {ours}", names),
        ]
        works.append(Work(title, "µs", "asyncpg", cases, {"lexigram": Target(1.3, "asyncpg")}))
    await measure(works, plan)
    await db.close()
    await raw.execute(f"DROP SCHEMA {schema} CASCADE")
    await raw.close()
    await limited.close()
    return Section("PostgreSQL single statements", note, works)
