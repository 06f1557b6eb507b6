"""Reading and writing of each cache against a plain dict, cachetools, aiocache and raw clients."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from harness import Facts, Plan, Section, Work, measure, outcome, snippet

from lexigram.cache import Cache, MemoryCache, RedisCache, RedisConnection, Shared, SqlCache, Values
from lexigram.sql import Database, SqlConfig
from lexigram.sql.migrate import upgrade

TITLE = "Cache"
PEERS = ("aiocache", "cachetools", "redis", "asyncpg")
POSTGRES = os.environ.get("LEX_BENCH_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
REDIS = os.environ.get("LEX_BENCH_REDIS", "redis://127.0.0.1:6379/0")
VALUE = {"id": 7, "name": "Ada Lovelace", "tags": ["a", "b"], "active": True}


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    yield await _memory(plan)
    yield await _redis(plan)
    yield await _sqlite(plan)
    yield await _postgres(plan)


async def _memory(plan: Plan) -> Section:
    import aiocache
    import cachetools

    peer = aiocache.SimpleMemoryCache()
    names = {
        "VALUE": VALUE,
        "plain": {"key": "text", "object": VALUE},
        "tools": cachetools.TTLCache(10_000, 60),
        "peer": peer,
        "ours": Cache(MemoryCache()),
        "shared": Cache(MemoryCache(values=Shared())),
    }
    for key, value in names["plain"].items():
        names["tools"][key] = value
        for cache in (peer, names["ours"], names["shared"]):
            await cache.set(key, value)
    works = []
    for title, key, value in (("text", "key", "'text'"), ("a small dict", "object", "VALUE")):
        works += [
            Work(
                f"read {title}",
                "ns",
                "dict",
                [
                    snippet("dict", f"result = plain.get('{key}')", names),
                    snippet("cachetools TTLCache", f"result = tools.get('{key}')", names),
                    snippet("aiocache", f"result = await peer.get('{key}')", names),
                    snippet("lexigram", f"result = (await ours.get('{key}')).unwrap()", names),
                    snippet(
                        "lexigram, shared", f"result = (await shared.get('{key}')).unwrap()", names
                    ),
                ],
            ),
            Work(
                f"write {title}, ttl 60 s",
                "ns",
                "dict",
                [
                    snippet("dict", f"plain['{key}'] = result = {value}", names),
                    snippet("cachetools TTLCache", f"tools['{key}'] = result = {value}", names),
                    snippet(
                        "aiocache", f"await peer.set('{key}', {value}, 60); result = {value}", names
                    ),
                    snippet(
                        "lexigram", f"await ours.set('{key}', {value}, 60); result = {value}", names
                    ),
                    snippet(
                        "lexigram, shared",
                        f"await shared.set('{key}', {value}, 60); result = {value}",
                        names,
                    ),
                ],
            ),
        ]
    names["load"] = _load
    works.append(
        Work(
            "get_or_set, a hit",
            "ns",
            "dict",
            [
                snippet("dict", "result = plain.get('key')", names),
                snippet(
                    "lexigram", "result = (await ours.get_or_set('key', load)).unwrap()", names
                ),
            ],
        )
    )
    await _measured(works, plan)
    note = (
        "A dict and cachetools hand out the stored object and are not awaited; cachetools is given"
        " one ttl for all. aiocache shares objects too. lexigram copies what can change (`shared`"
        " does not), checks keys and keeps to a limit, least recently used out."
    )
    return Section("In memory", note, works)


async def _load():
    return 1


async def _redis(plan: Plan) -> Section:
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    note = "One caller, one after the other, a small dict as msgpack; raw is redis.asyncio with its own pool and the same bytes."
    title = "In Redis"
    prefix = f"lexigram-bench:{secrets.token_hex(6)}"
    raw = Redis.from_url(REDIS)
    try:
        await raw.ping()
    except (RedisError, OSError):
        return Section(title, note, [], skipped=["no server answers"])
    values = Values()
    connection = RedisConnection(REDIS)
    names = {
        "VALUE": VALUE,
        "raw": raw,
        "values": values,
        "name": f"{prefix}:raw",
        "ours": Cache(RedisCache(connection, prefix=prefix)),
    }
    await raw.set(names["name"], values.write("key", VALUE))
    await names["ours"].set("key", VALUE)
    works = [
        Work(
            "read",
            "µs",
            "raw client",
            [
                snippet("raw client", "result = values.read('key', await raw.get(name))", names),
                snippet("lexigram", "result = (await ours.get('key')).unwrap()", names),
            ],
        ),
        Work(
            "write, ttl 60 s",
            "µs",
            "raw client",
            [
                snippet(
                    "raw client",
                    "result = await raw.set(name, values.write('key', VALUE), px=60000)",
                    names,
                ),
                snippet("lexigram", "result = (await ours.set('key', VALUE, 60)).is_ok()", names),
            ],
        ),
    ]
    await _measured(works, plan)
    for key in await raw.keys(f"{prefix}*"):
        await raw.delete(key)
    await connection.aclose()
    await raw.aclose()
    return Section(title, note, works)


async def _sqlite(plan: Plan) -> Section:
    folder = Path(tempfile.mkdtemp())
    db = Database(f"sqlite:///{folder / 'ours.db'}")
    await db.connect()
    await upgrade(db)
    plain = sqlite3.connect(folder / "plain.db", isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL"):
        plain.execute(statement)
    plain.execute("CREATE TABLE t (key TEXT PRIMARY KEY, value BLOB, expires_at REAL)")
    plain.execute("INSERT INTO t VALUES ('key', ?, NULL)", (Values().write("key", VALUE),))
    names = {"VALUE": VALUE, "plain": plain, "values": Values(), "ours": Cache(SqlCache(db))}
    await names["ours"].set("key", VALUE)
    works = [
        Work(
            "read",
            "µs",
            "sqlite3, blocking",
            [
                snippet(
                    "sqlite3, blocking",
                    "result = values.read('key', plain.execute(\"SELECT value FROM t WHERE key = ?"
                    " AND (expires_at IS NULL OR expires_at > ?)\", ('key', 1.0)).fetchone()[0])",
                    names,
                ),
                snippet("lexigram", "result = (await ours.get('key')).unwrap()", names),
            ],
        ),
        Work(
            "write, ttl 60 s",
            "µs",
            "sqlite3, blocking",
            [
                snippet(
                    "sqlite3, blocking",
                    'result = plain.execute("INSERT INTO t VALUES (?, ?, ?) ON CONFLICT (key) DO'
                    ' UPDATE SET value = excluded.value, expires_at = excluded.expires_at",'
                    " ('key', values.write('key', VALUE), 1e10)).rowcount",
                    names,
                ),
                snippet("lexigram", "result = (await ours.set('key', VALUE, 60)).is_ok()", names),
            ],
        ),
    ]
    await _measured(works, plan)
    await db.close()
    plain.close()
    shutil.rmtree(folder)
    note = "sqlite3 in the event loop blocks it, which an application must not do: it is the floor. Ours goes to a thread and back."
    return Section("In SQLite", note, works)


async def _postgres(plan: Plan) -> Section:
    import asyncpg

    note = "Raw is asyncpg on a connection it keeps, with our statement; both encode and decode."
    title = "In PostgreSQL"
    schema = f"lex_bench_{os.getpid()}_{secrets.token_hex(4)}"
    try:
        admin = await asyncpg.connect(POSTGRES, timeout=5)
    except OSError:
        return Section(title, note, [], skipped=["no server answers"])
    await admin.execute(f"CREATE SCHEMA {schema}; SET search_path = {schema}")
    db = Database(SqlConfig(url=f"{POSTGRES}?search_path={schema}", pool_size=1))
    await db.connect()
    await upgrade(db)
    backend = SqlCache(db)
    names = {
        "VALUE": VALUE,
        "raw": admin,
        "values": Values(),
        "ours": Cache(backend),
        "GET": _numbered(backend._sql.get),
        "SET": _numbered(backend._sql.set),
    }
    await names["ours"].set("key", VALUE)
    works = [
        Work(
            "read",
            "µs",
            "asyncpg",
            [
                snippet(
                    "asyncpg",
                    "result = values.read('key', await raw.fetchval(GET, 'default', 'key'))",
                    names,
                ),
                snippet("lexigram", "result = (await ours.get('key')).unwrap()", names),
            ],
        ),
        Work(
            "write, ttl 60 s",
            "µs",
            "asyncpg",
            [
                snippet(
                    "asyncpg",
                    "result = await raw.execute(SET, 'default', 'key', values.write('key', VALUE), 60.0)",
                    names,
                ),
                snippet("lexigram", "result = (await ours.set('key', VALUE, 60)).is_ok()", names),
            ],
        ),
    ]
    await _measured(works, plan)
    await db.close()
    await admin.execute(f"DROP SCHEMA {schema} CASCADE")
    await admin.close()
    return Section(title, note, works)


def _numbered(sql: str) -> str:
    for number in range(1, sql.count("?") + 1):
        sql = sql.replace("?", f"${number}", 1)
    return sql


async def _measured(works: list[Work], plan: Plan) -> None:
    for case in (case for work in works for case in work.cases):
        assert await outcome(case), case.who
    await measure(works, plan)
