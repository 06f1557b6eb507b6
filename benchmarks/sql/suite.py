"""Write paths of SQLite and PostgreSQL against the plain drivers."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import Case, Facts, Plan, Run, Section, Target, Work, measure, outcome, snippet
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from lexigram.sql import Database, SqlConfig

TITLE = "SQL"
PEERS = ("sqlalchemy", "aiosqlite", "asyncpg")
POSTGRES = os.environ.get("LEX_BENCH_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)"
INSERT = "INSERT INTO t (name) VALUES (?)"
PLAIN = "sqlite3, one thread"
AIOSQLITE = "aiosqlite engine"
RAW = "asyncpg"
TASKS = 10  # as many as there are connections


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    yield await _sqlite(plan)
    yield await _postgres(plan)


async def _sqlite(plan: Plan) -> Section:
    folder = Path(tempfile.mkdtemp())
    thread = ThreadPoolExecutor(1)
    plain = await asyncio.get_running_loop().run_in_executor(thread, _plain, folder / "plain.db")
    db = Database(f"sqlite:///{folder / 'ours.db'}")
    await db.connect()
    await db.execute(TABLE)
    engine = await _aiosqlite(folder / "aio.db")
    insert = text("INSERT INTO t (name) VALUES (:name)")

    def steps():
        return (yield INSERT, ("x",))

    names = {
        "loop": asyncio.get_running_loop(),
        "thread": thread,
        "write": lambda: _write(plain),
        "db": db,
        "engine": engine,
        "INSERT": INSERT,
        "insert": insert,
        "core": lambda connection: connection.execute(insert, {"name": "x"}).rowcount,
        "driver": lambda connection: connection.exec_driver_sql(INSERT, ("x",)).rowcount,
        "steps": steps,
    }
    sources = {
        PLAIN: "result = await loop.run_in_executor(thread, write)",
        "lexigram run": "result = await db.run(core)",
        "lexigram run, text": "result = await db.run(driver)",
        "lexigram run_steps": "result = (await db.run_steps(steps)).row_count",
        "lexigram execute": "result = (await db.execute(INSERT, ('x',))).row_count",
        "lexigram transaction": "async with db.transaction():\n"
        "    result = (await db.execute(INSERT, ('x',))).row_count",
        AIOSQLITE: "async with engine.begin() as c:\n"
        "    result = (await c.execute(insert, {'name': 'x'})).rowcount",
    }
    cases = [snippet(who, source, names) for who, source in sources.items()]
    for case in cases:
        assert await outcome(case) == 1, case.who
    ours = ["lexigram run", "lexigram run, text", "lexigram run_steps", "lexigram execute"]
    # A quarter of the time is four times the rate; twice the time is half of it.
    works = [
        Work("one-row transaction", "µs", PLAIN, cases, dict.fromkeys(ours, Target(2.0, PLAIN))),
        Work(
            "the same, by the peer",
            "µs",
            AIOSQLITE,
            cases[1:],
            dict.fromkeys(ours, Target(0.25, AIOSQLITE)),
        ),
    ]
    together = [_spread(who, sources[who], [None] * TASKS, names) for who in (PLAIN, *ours)]
    works += [
        Work(
            f"the same, {TASKS} tasks at once",
            "µs",
            PLAIN,
            together,
            dict.fromkeys(ours, Target(2.0, PLAIN)),
        ),
        Work("processor time in the thread", "µs", PLAIN, _in_the_thread(db, names)),
    ]
    await measure([works[0], *works[2:]], plan, rounds=plan.rounds * 3)
    await db.close()
    await asyncio.get_running_loop().run_in_executor(thread, plain.close)
    thread.shutdown()
    await engine.dispose()
    shutil.rmtree(folder)
    note = (
        "WAL, synchronous NORMAL; every write is one committed transaction of one row, one after"
        " the other. The peer is SQLAlchemy's async engine on aiosqlite with the same statement,"
        " journal and `synchronous`; the first two tables are of the same rounds. The hop to the"
        " thread and back is most of the time, on a busy machine nearly all of it; the last table"
        " is what is left without it."
    )
    return Section("SQLite writes", note, works)


def _in_the_thread(db: Database, names: dict) -> list[Case]:
    """What the thread does for a transaction, without the way there and back."""
    works = {
        "lexigram run": lambda handle, job: handle.transact(names["core"], job, "BEGIN IMMEDIATE"),
        "lexigram run, text": lambda handle, job: handle.transact(
            names["driver"], job, "BEGIN IMMEDIATE"
        ),
        "lexigram run_steps": lambda handle, job: handle.transact_steps(
            names["steps"], job, "BEGIN IMMEDIATE"
        ),
        "lexigram execute": lambda handle, _: handle.execute_alone(INSERT, ("x",)),
    }

    def timed(loops: int, work: Callable[[], object]) -> int:
        started = time.thread_time_ns()
        for _ in range(loops):
            work()
        return time.thread_time_ns() - started

    def ours(work) -> Run:
        return lambda loops: db._backend.writer.call(  # noqa: SLF001 - no door leads only here
            lambda handle, job: timed(loops, lambda: work(handle, job))
        )

    def plain(loops: int) -> Awaitable[int]:
        return names["loop"].run_in_executor(names["thread"], timed, loops, names["write"])

    return [Case(PLAIN, plain), *(Case(who, ours(work)) for who, work in works.items())]


def _plain(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(TABLE)
    return connection


def _write(connection: sqlite3.Connection) -> int:
    connection.execute("BEGIN IMMEDIATE")
    written = connection.execute(INSERT, ("x",)).rowcount
    connection.execute("COMMIT")
    return written


async def _aiosqlite(file: Path) -> AsyncEngine:
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}")

    @event.listens_for(engine.sync_engine, "connect")
    def _settings(connection, _) -> None:
        # Without this every commit of the peer would wait for the disk, and ours would not.
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.close()

    async with engine.begin() as connection:
        await connection.execute(text(TABLE))
    return engine


async def _postgres(plan: Plan) -> Section:
    import asyncpg

    schema = f"lex_bench_{os.getpid()}_{secrets.token_hex(4)}"
    note = (
        "On the same machine; single statements that commit by themselves and are prepared once"
        " per connection on all sides. Raw asyncpg uses connections it keeps; `same time limits`"
        f" has our `command_timeout` and `statement_timeout` too. In the second pair {TASKS} tasks"
        f" share {TASKS} connections; a raw one belongs to its task, the pools lend theirs per"
        " statement."
    )
    title = "PostgreSQL single statements"
    try:
        admin = await asyncpg.connect(POSTGRES, timeout=5)
    except OSError:
        return Section(title, note, [], skipped=["no server answers"])
    await admin.execute(
        f"CREATE SCHEMA {schema}; SET search_path = {schema};"
        "CREATE UNLOGGED TABLE t (id bigserial PRIMARY KEY, name text);"
        "INSERT INTO t (name) VALUES ('x')"
    )
    mine, limits = {"search_path": schema}, {"statement_timeout": "30000"}
    url = f"{POSTGRES}?search_path={schema}"
    raw = [await asyncpg.connect(POSTGRES, server_settings=mine) for _ in range(TASKS)]
    limited = await asyncpg.connect(POSTGRES, command_timeout=32, server_settings=mine | limits)
    pool = await asyncpg.create_pool(POSTGRES, min_size=TASKS, max_size=TASKS, server_settings=mine)
    async with Database(SqlConfig(url=url, pool_size=1)) as db:
        async with Database(SqlConfig(url=url, pool_size=TASKS)) as wide:
            works = [
                work
                for statement in STATEMENTS
                for work in (
                    _one_connection(raw[0], limited, db, statement),
                    _one_connection(raw[0], limited, db, statement, "processor time of the client"),
                    _many_tasks(raw, pool, wide, statement),
                )
            ]
            for case in (case for work in works for case in work.cases):
                assert await outcome(case), case.who
            await measure(works, plan, rounds=plan.rounds * 3)
    for connection in (*raw, limited):
        await connection.close()
    await pool.close()
    await admin.execute(f"DROP SCHEMA {schema} CASCADE")
    await admin.close()
    return Section(title, note, sorted(works, key=lambda work: f"{TASKS} tasks" in work.title))


# Title, ours, theirs; both return the row.
STATEMENTS = [
    (
        "INSERT",
        "execute('INSERT INTO t (name) VALUES (?) RETURNING id', ('x',))",
        "fetch('INSERT INTO t (name) VALUES ($1) RETURNING id', 'x')",
    ),
    (
        "SELECT by key",
        "execute_query('SELECT * FROM t WHERE id = ?', (1,))",
        "fetch('SELECT * FROM t WHERE id = $1', 1)",
    ),
]


def _one_connection(
    raw, limited, db: Database, statement: tuple[str, str, str], only: str = ""
) -> Work:
    title, ours, theirs = statement
    names = {"raw": raw, "limited": limited, "db": db}
    if only:  # what waits for the server and for a processor is left out
        title, names["clock"] = f"{title}, {only}", time.process_time_ns
    cases = [
        snippet(RAW, f"result = await raw.{theirs}", names),
        snippet(f"{RAW}, same time limits", f"result = await limited.{theirs}", names),
        snippet("lexigram", f"result = (await db.{ours}).rows", names),
    ]
    return Work(title, "µs", RAW, cases, {} if only else {"lexigram": Target(1.3, RAW)})


def _many_tasks(raw, pool, db: Database, statement: tuple[str, str, str]) -> Work:
    title, ours, theirs = statement
    cases = [
        _spread(RAW, f"result = await c.{theirs}", raw),
        _spread(f"{RAW} pool", f"result = await c.{theirs}", [pool] * TASKS),
        _spread("lexigram", f"result = (await c.{ours}).rows", [db] * TASKS),
    ]
    title = f"{title}, {TASKS} tasks"
    return Work(title, "µs", RAW, cases, {"lexigram": Target(1.3, RAW)})


def _spread(who: str, source: str, clients: list, names: Mapping = {}) -> Case:  # noqa: B006
    """All clients at once, each in a task that does its share of the loops."""
    shares = [snippet(who, source, {**names, "c": client}) for client in clients]

    async def run(loops: int) -> int:
        each = max(1, loops // len(shares))
        started = time.perf_counter_ns()
        await asyncio.gather(*(share.run(each) for share in shares))
        # As if exactly so many loops had been asked for.
        return int((time.perf_counter_ns() - started) * loops / (each * len(shares)))

    case = Case(who, run)
    case.once = shares[0].once  # type: ignore[attr-defined]
    return case
