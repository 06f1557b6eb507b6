"""The statements of the bus go by indexes, however much is settled, dead or of other groups."""

import re

import pytest

from lexigram.queue.backends.sql import store, store_postgres, store_sqlite
from lexigram.queue.outbox import store as store_outbox
from lexigram.queue.outbox import store_inbox
from lexigram.sql import Database

pytestmark = pytest.mark.anyio

ROWS = 30_000

# A group with all kinds of rows, and others; messages of one and of two groups; a backlog.
FILL = """
INSERT INTO lexigram_bus_groups (id, topic, name, used_at)
    SELECT n, 't' || n, 'g', 0 FROM numbers WHERE n <= 20;
INSERT INTO lexigram_bus_messages (seq, id, topic, body, headers, sent_at, priority, guarantee,
        retry_count, max_retries, due_at, copies, remaining)
    SELECT n, 'm' || n, 't' || (n % 20 + 1), '', '{}', 0, 0, 'at_least_once', 0, 3, 0,
        CASE WHEN n % 50 = 0 THEN 0 ELSE 1 END, 1 FROM numbers;
INSERT INTO lexigram_bus_deliveries
        (group_id, message, id, state, due_at, rank, queued_at, ordering_key, lane, dead)
    SELECT n % 20 + 1, n, 'm' || n,
        CASE WHEN n % 7 < 4 THEN 'dead' WHEN n % 7 = 4 THEN 'leased' WHEN n % 7 = 5 THEN 'delayed'
             ELSE 'ready' END,
        n + 1e10, 0, n, CASE WHEN n % 3 = 0 THEN 'k' || (n % 100) END,
        CASE WHEN n % 3 = 0 THEN 'k' || (n % 100) END, '{}' FROM numbers;
INSERT INTO lexigram_bus_outbox (seq, queue, owner, id, topic, body, envelope, ordering_key, due_at)
    SELECT n, 'q' || (n % 50), 'o', 'm', 't', '', '{}', 'k' || (n % 100), 0 FROM numbers;
INSERT INTO lexigram_bus_inbox (group_name, message_id, handled_at)
    SELECT 'g', 'm' || n, n FROM numbers;
INSERT INTO lexigram_bus_seen (topic, id, seen_at) SELECT 't', 'm' || n, n FROM numbers"""


@pytest.fixture
async def full(database):
    series = (
        f"SELECT generate_series(1, {ROWS})"
        if database.dialect == "postgresql"
        else f"VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS}"
    )
    await database.execute(
        f"CREATE TABLE numbers AS WITH RECURSIVE numbers(n) AS ({series}) SELECT n FROM numbers"
    )
    for statement in FILL.split(";"):
        await database.execute(statement)
    await database.execute("DROP TABLE numbers")
    await database.execute("ANALYZE")
    return database


def postgres_statements():
    arrays = ([1, 2, 3], [0, 0, 0])
    message = (["i"], ["t1"], [b""], ["{}"], [0.0], [None], [0], ["g"], [0], [3], [0.0])
    made = store_postgres.PostgresBusStore(
        Database("postgresql://nobody@nowhere/x")
    ).render_statement
    outbox = store_outbox.SqlOutboxStore(
        Database("postgresql://nobody@nowhere/x"), "q1"
    )._render_statement
    return {
        "publish": (store_postgres.PUBLISH, (*message, ["k"], ["k"], 100)),
        "publish once": (store_postgres.PUBLISH_ONCE, (*message, ["k"], ["k"], 100, 60.0)),
        "claim": (store_postgres.CLAIM, (1, 1000, 30.0, 1, 1, 1, 10)),
        "look": (store_postgres.LOOK, (1, 1, 1)),
        "settle": (store_postgres.SETTLE, (*arrays, 1, 1)),
        "remove": (store_postgres.REMOVE, ([1, 2], 1, 1)),
        "release": (store_postgres.RELEASE, (*arrays, 1, 1, "1")),
        "extend": (store_postgres.EXTEND, (*arrays, 1, 30.0, 1)),
        "retry": (made(store.RETRY), ("ready", None, 0.0, None, 0.0, None, None, 1, 1, 1)),
        "bury": (store.BURY, ("m1", 0.0, "{}", "{}", None, 1, 1, 1)),
        "older dead": (store.OLDER_DEAD, (1, "m1")),
        "list dead": (store.LIST_DEAD, (1, 100, 0)),
        "count dead": (store.COUNT_DEAD, (1,)),
        "dead by id": (made(store.DEAD_BY_ID), (1, ["m1"])),
        "peek": (made(store.PEEK), (1, 10, 1, None, 10, 10)),
        "forget seen": (made(store.FORGET_SEEN), (None, 1e9)),
        "forget done": (store.FORGET_DONE, (1000,)),
        "relay": (
            outbox(store_outbox.CLAIM),
            ("h", None, 30.0, "q1", None, False, None, False, 100),
        ),
        "relay look": (outbox(store_outbox.ANY_WAITING), ("q1", None)),
        "relayed": (outbox(store_outbox.DELETE), ([1, 2], "h")),
        "inbox": (store_inbox.NOTE.replace("{rows}", "(?, ?, ?)"), ("g", "x", 1.0)),
        "prune": (store_inbox.PRUNE, (1.0, 1000)),
    }


def sqlite_statements():
    pairs = "[[1, 0], [2, 0]]"
    made = store_sqlite.SqliteBusStore(Database("sqlite://")).render_statement
    outbox = store_outbox.SqlOutboxStore(Database("sqlite://"), "q1")._render_statement
    return {
        "topics": (store_sqlite.TOPICS, ('["t1"]',)),
        "dispatch": (store_sqlite.DISPATCH, (0.0, ROWS - 5, ROWS - 5)),
        "adopt": (store_sqlite.DISPATCH_BACKLOG, (0.0, "t1")),
        "wake": (store_sqlite.WAKE_DUE, (1, 0.0)),
        "candidates": (store_sqlite.CANDIDATES, (1, 1000, 10)),
        "lease": (store_sqlite.LEASE, (0.0, 1, "[1, 2]")),
        "look": (store_sqlite.LOOK, (1,)),
        "settle": (store_sqlite.SETTLE, (1, pairs)),
        "forget": (store_sqlite.FORGET_MESSAGES, ("[1, 2]",)),
        "release": (store_sqlite.RELEASE, (1, pairs)),
        "extend": (store_sqlite.EXTEND, (0.0, 1, pairs)),
        "retry": (made(store.RETRY), ("ready", 0.0, 0.0, 0.0, 0.0, None, None, 1, 1, 1)),
        "older dead": (store.OLDER_DEAD, (1, "m1")),
        "list dead": (store.LIST_DEAD, (1, 100, 0)),
        "count dead": (store.COUNT_DEAD, (1,)),
        "dead by id": (made(store.DEAD_BY_ID), (1, '["m1"]')),
        "peek": (made(store.PEEK), (1, 10, 1, 0.0, 10, 10)),
        "forget seen": (made(store.FORGET_SEEN), (0.0, 1.0)),
        "forget done": (store.FORGET_DONE, (1000,)),
        "relay": (
            outbox(store_outbox.CLAIM),
            ("h", 0.0, 30.0, "q1", 0.0, False, 0.0, False, 100),
        ),
        "relay look": (outbox(store_outbox.ANY_WAITING), ("q1", 0.0)),
        "prune": (store_inbox.PRUNE, (1.0, 1000)),
    }


async def test_no_statement_reads_a_whole_table(full):
    if full.dialect == "postgresql":
        statements, prefix, scanned = postgres_statements(), "EXPLAIN ", r"Seq Scan on lexigram_bus"
    else:
        statements, prefix, scanned = (
            sqlite_statements(),
            "EXPLAIN QUERY PLAN ",
            r"SCAN (d|m|e|o|lexi)",
        )
    bad = {}
    for name, (statement, params) in statements.items():
        plan = await full.execute_query(prefix + statement, params)
        lines = [str(row.get("detail") or row.get("QUERY PLAN")) for row in plan.rows]
        wrong = [line for line in lines if is_whole(line, scanned)]
        if "CO-ROUTINE d" in lines:
            wrong = [line for line in wrong if line != "SCAN d"]  # the rows of the subquery
        if wrong:
            bad[name] = lines
    assert not bad, "\n".join(f"{name}:\n  " + "\n  ".join(lines) for name, lines in bad.items())


def is_whole(line, scanned):
    """A scan of a table that grows; SQLite may walk an index that holds only what is looked for."""
    if "lexigram_bus_groups" in line or not re.search(scanned, line):
        return False
    return "_messages_done" not in line
