"""The statements go by the indexes they were made for, however many finished jobs there are."""

import json

import pytest

from lexigram.sql.placeholders import number_placeholders
from lexigram.tasks import statements as sql

pytestmark = pytest.mark.anyio
FINISHED = 100_000
READY = 2_000

COLUMNS = """id, name, queue, priority, payload, max_retries, max_deliveries, depends_on,
on_dependency_failure, state, available_at, created_at, completed_at"""
# Twenty queues: one of them is a small part of what can be claimed.
ROW = "{id}, 'n', 'q' || (n % 20), 0, '', 3, 20, '', 'cancel', {state}, {n}, 0, {done}"


async def fill_postgres(db):
    for state, rows in (("completed", FINISHED), ("ready", READY), ("running", 50)):
        done = "n" if state == "completed" else "NULL"
        row = ROW.format(id=f"'{state}' || n", state=f"'{state}'", n="n", done=done)
        await db.execute(
            f"INSERT INTO lexigram_jobs ({COLUMNS}) SELECT {row} FROM generate_series(1, {rows}) n"
        )
    await db.execute("UPDATE lexigram_jobs SET lease_until = 1e12 WHERE state = 'running'")
    await db.execute("ANALYZE lexigram_jobs")


def nodes(plan):
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@pytest.mark.service("postgresql")
@pytest.mark.parametrize(
    ("statement", "params", "index", "rows"),
    [
        (sql.CLAIM, (None, "w", 30.0, "q7", 50), "ix_lexigram_jobs_ready", 50),
        (sql.CLAIM_ANY, (None, "w", 30.0, 50), "ix_lexigram_jobs_ready_all", 50),
        (sql.PROMOTE, (None,), "ix_lexigram_jobs_delayed", 0),
        (sql.REAP, (None,), "ix_lexigram_jobs_leased", 0),
        (sql.PURGE, (None, 0.0), "ix_lexigram_jobs_ended", 1_000),
    ],
    ids=["claim", "claim any", "promote", "reap", "purge"],
)
async def test_the_plan_in_postgres_reads_little_more_than_the_rows_it_changes(
    postgres, statement, params, index, rows
):
    await fill_postgres(postgres)
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + number_placeholders(
        sql.POSTGRES.made(statement)
    )

    async def plans(connection):
        driver = connection.driver
        # Both plans the server may take: for these values, and for any.
        answers = []
        for mode in ("force_custom_plan", "force_generic_plan"):
            await driver.execute(f"SET LOCAL plan_cache_mode = {mode}")
            answers.append(await driver.fetchval(explain, *params))
        return answers

    for answer in await postgres.run(plans):
        text = answer if isinstance(answer, str) else json.dumps(answer)
        plan = json.loads(text)[0]["Plan"]
        assert plan["Actual Rows"] == rows
        assert index in [node.get("Index Name") for node in nodes(plan)]
        assert "Seq Scan" not in [node["Node Type"] for node in nodes(plan)]
        # To find and lock a row: its page, twice, and its entry; what was claimed just before
        # is passed over. To change it: its entries in up to eight indexes.
        [found] = [node for node in nodes(plan) if node["Node Type"] == "LockRows"]
        assert touched(found) <= 3 * rows + 50
        assert touched(plan) <= 25 * rows + 50


def touched(node):
    return node["Shared Hit Blocks"] + node["Shared Read Blocks"]


async def test_the_plan_in_sqlite_has_the_partial_index(sqlite):
    for statement, params, index in (
        (sql.CLAIM, (0.0, "w", 30.0, "q", 100), "ix_lexigram_jobs_ready"),
        (sql.CLAIM_ANY, (0.0, "w", 30.0, 100), "ix_lexigram_jobs_ready_all"),
        (sql.PROMOTE, (0.0,), "ix_lexigram_jobs_delayed"),
        (sql.REAP, (0.0,), "ix_lexigram_jobs_leased"),
        (sql.PURGE, (0.0, 0.0), "ix_lexigram_jobs_ended"),
    ):
        found = await sqlite.execute_query(
            "EXPLAIN QUERY PLAN " + sql.SQLITE.made(statement), params
        )
        plan = "\n".join(row["detail"] for row in found.rows)
        assert f"INDEX {index}" in plan
        assert "SCAN lexigram_jobs\n" not in f"{plan}\n"
