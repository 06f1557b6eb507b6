"""SQLite and PostgreSQL as the broker, beside a hand-written table and batch loop on each.

The hand-written ones have one table, one group and one state: no retries, delays, order, fairness,
fan-out or dead letters. They are the limit of what a database gives.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import orjson
from bus.contest import (
    BATCH,
    FAIRNESS,
    PAYLOAD,
    Contestant,
    fairness_row,
    latencies,
    ours,
    ten_behind,
)
from harness import Case, Facts, Plan, Section, Work, measure

from lexigram.contracts.queue import BusMessage
from lexigram.contracts.queue.headers import FAIRNESS_KEY
from lexigram.queue import BusOptions, SqlQueue
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade

POSTGRES = os.environ.get("LEX_BENCH_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
MESSAGES = 3_000

RAW_SQLITE, SQLITE = "hand-written on SQLite", "lexigram on SQLite"
RAW_POSTGRES, POSTGRESQL = "hand-written, SKIP LOCKED", "lexigram on PostgreSQL"


async def sections(plan: Plan) -> AsyncIterator[Section | Facts]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        sqlite_url = await enter(_sqlite())
        postgres_url = await enter(_postgres())
        sqlite = {RAW_SQLITE: await enter(_raw_sqlite()), SQLITE: await enter(_ours(sqlite_url))}
        postgres = {
            RAW_POSTGRES: await enter(_raw_postgres(postgres_url)),
            POSTGRESQL: await enter(_ours(postgres_url)),
        }
        yield await _throughput(plan, sqlite, postgres)
        yield await _latency(plan, sqlite, postgres)
    yield await _fairness(plan)


async def _throughput(plan: Plan, *made: dict[str, Any]) -> Section:
    works = [
        Work(
            "publish, handle, acknowledge one message",
            "µs",
            next(iter(contestants)),
            [Case(who, one.flow, MESSAGES) for who, one in contestants.items()],
        )
        for contestants in made
    ]
    await measure(works, plan, rounds=plan.few(9))
    return Section(
        "SQL",
        f"JSON of 256 bytes, a handler that does nothing, at least once, one process, {BATCH} "
        "messages at a time. The hand-written table has no groups, retries, delays, order, "
        "fairness or dead letters.",
        works,
    )


async def _latency(plan: Plan, *made: dict[str, Contestant]) -> Section:
    works = [latencies(contestants) for contestants in made]
    await measure(works, plan, rounds=plan.few(21))
    return Section("SQL, idle latency", "The hand-written consumers are woken too.", works)


async def _fairness(plan: Plan) -> Facts:
    """Ten messages of a tenant, alone and behind 10,000 of another."""

    async def ten(url: str, flooding: str | None) -> float:
        async with SqlQueue(url, options=BusOptions(drain_timeout=0.0)) as queue:
            return await ten_behind(queue, "late", flooding)

    rows = []
    for title, place in (("SQLite", _sqlite), ("PostgreSQL", _postgres)):
        ratios = []
        for _ in range(3 if plan.quick else 5):
            async with place() as url:
                alone = await ten(url, None)
                ratios.append(await ten(url, "flood") / alone)
        rows.append(fairness_row(title, ratios))
    return Facts("SQL, fairness", FAIRNESS, ["on", "median", "worst", "target", ""], rows)


@asynccontextmanager
async def _sqlite() -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/bus.db"
        async with Database(url) as database:
            await upgrade(database)
        yield url


@asynccontextmanager
async def _postgres() -> AsyncIterator[str]:
    schema = f"lex_bench_{secrets.token_hex(4)}"
    admin = await asyncpg.connect(POSTGRES)
    await admin.execute(f"CREATE SCHEMA {schema}")
    url = f"{POSTGRES}?search_path={schema}"
    async with Database(url) as database:
        await upgrade(database)
    yield url
    await admin.execute(f"DROP SCHEMA {schema} CASCADE")
    await admin.close()


@asynccontextmanager
async def _ours(url: str) -> AsyncIterator[Contestant]:
    async with SqlQueue(url, options=BusOptions(prefetch=2 * BATCH)) as queue:
        yield await ours(queue)


@asynccontextmanager
async def _raw_postgres(url: str) -> AsyncIterator[Contestant]:
    """One connection out, one in: INSERT of arrays, UPDATE SKIP LOCKED, DELETE, LISTEN."""
    out, into, ear = [await asyncpg.connect(url) for _ in range(3)]
    await out.execute(
        "CREATE TABLE raw (seq bigserial PRIMARY KEY, body bytea, taken boolean DEFAULT false);"
        "CREATE INDEX ON raw (seq) WHERE NOT taken"
    )
    news = asyncio.Event()
    await ear.add_listener("raw", lambda *_: news.set())

    class Raw(Contestant):
        async def publish(self, number: int) -> None:
            await out.execute(
                "WITH new AS (INSERT INTO raw (body) SELECT unnest($1::bytea[]))"
                " SELECT pg_notify('raw', '')",
                [orjson.dumps(PAYLOAD) for _ in range(number)],
            )

    raw = Raw()

    async def consume() -> None:
        while True:
            news.clear()
            rows = await into.fetch(
                "UPDATE raw SET taken = true WHERE seq = ANY(ARRAY(SELECT seq FROM raw"
                " WHERE NOT taken ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED))"
                " RETURNING seq, body",
                BATCH,
            )
            if not rows:
                await news.wait()
                continue
            for row in rows:
                orjson.loads(row["body"])
                raw.count()
            await into.execute("DELETE FROM raw WHERE seq = ANY($1)", [row["seq"] for row in rows])

    async with _running(consume):
        yield raw
    for connection in (out, into, ear):
        await connection.close()


@asynccontextmanager
async def _raw_sqlite() -> AsyncIterator[Contestant]:
    """One thread with one connection, as SQLite likes it; one transaction for each batch."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as thread:

        def open_connection() -> sqlite3.Connection:
            made = sqlite3.connect(Path(folder) / "raw.db", isolation_level=None)
            made.executescript(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                "CREATE TABLE raw (seq INTEGER PRIMARY KEY AUTOINCREMENT, body, taken DEFAULT 0);"
                "CREATE INDEX waiting ON raw (seq) WHERE NOT taken"
            )
            return made

        def transacted(work: Callable[[], Any]) -> Any:
            db.execute("BEGIN IMMEDIATE")
            result = work()
            db.execute("COMMIT")
            return result

        db = await loop.run_in_executor(thread, opened)

        class Raw(Contestant):
            async def publish(self, number: int) -> None:
                rows = [(orjson.dumps(PAYLOAD),) for _ in range(number)]
                insert = "INSERT INTO raw (body) VALUES (?)"
                await loop.run_in_executor(thread, transacted, lambda: db.executemany(insert, rows))
                news.set()

        raw = Raw()

        def claim() -> list[tuple[int, bytes]]:
            return db.execute(
                "UPDATE raw SET taken = 1 WHERE seq IN (SELECT seq FROM raw WHERE NOT taken"
                " ORDER BY seq LIMIT ?) RETURNING seq, body",
                (BATCH,),
            ).fetchall()

        async def consume() -> None:
            while True:
                news.clear()
                rows = await loop.run_in_executor(thread, transacted, claim)
                if not rows:
                    await news.wait()
                    continue
                for _, body in rows:
                    orjson.loads(body)
                    raw.count()
                gone = [(seq,) for seq, _ in rows]
                delete = "DELETE FROM raw WHERE seq = ?"
                await loop.run_in_executor(
                    thread,
                    transacted,
                    lambda: db.executemany(delete, gone),  # noqa: B023
                )

        async with _running(consume):
            yield raw
        await loop.run_in_executor(thread, db.close)


@asynccontextmanager
async def _running(consume: Callable[[], Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(consume())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
