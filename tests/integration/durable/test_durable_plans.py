"""The statements go by the indexes they were made for, however many finished runs there are."""

import json

import pytest

from lexigram.sql.placeholders import numbered
from lexigram.workflow.durable import DurableEngine, End, EndKind, NewRun, RunPlan, StepPlan
from lexigram.workflow.durable import store_postgres as postgres_sql
from lexigram.workflow.durable import store_sqlite as sqlite_sql
from lexigram.workflow.durable.store import ends_json

pytestmark = pytest.mark.anyio

FINISHED, READY, BLOCKED = 80_000, 20_000, 2_000
CLAIM_BUFFERS = 300  # to find and lock 100 candidates; the target of a claim
COLUMNS = """group_id, plan_id, priority, turn, rank, status, step_no, n_steps, step_type,
resource_key, available_at, created_at, status_at, completed_at, params"""
TYPES = "(ARRAY['parse','chunk','embed','store','route'])[1 + n % 5]"


async def fill(db):
    engine = DurableEngine(db)
    steps = [StepPlan(name="a", step_type="parse", handler="h")]
    await engine.submit(RunPlan(workflow_id="w", steps=steps), [NewRun(priority=-99)])
    for status, rows, key, done in (
        ("completed", FINISHED, "NULL", "n"),
        ("ready", READY, "NULL", "NULL"),
        ("blocked", BLOCKED, "'K'", "NULL"),
    ):
        await db.execute(
            f"INSERT INTO lexigram_durable_runs ({COLUMNS})"
            f" SELECT 1, 1, 0, n, n, '{status}', 1, 1, {TYPES}, {key}, n, n, n, {done}, '{{}}'"
            f" FROM generate_series(1, {rows}) n"
        )
    await db.execute("VACUUM ANALYZE lexigram_durable_runs")
    return engine


def nodes(plan):
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def touched(node):
    return node["Shared Hit Blocks"] + node["Shared Read Blocks"]


async def explained(db, statement, params):
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + numbered(statement)

    async def plans(connection):
        driver = connection.driver
        answers = []
        # Both plans the server may take: for these values, and for any.
        for mode in ("force_custom_plan", "force_generic_plan"):
            await driver.execute(f"SET LOCAL plan_cache_mode = {mode}")
            answer = await driver.fetchval(explain, *params)
            answers.append(json.loads(answer) if isinstance(answer, str) else answer)
        return answers

    return [answer[0]["Plan"] for answer in await db.run(plans)]


@pytest.mark.service("postgresql")
@pytest.mark.parametrize(
    ("statement", "which", "index"),
    [
        (postgres_sql.CLAIM_TYPE, "parse", "ix_lexigram_durable_runs_ready"),
        (postgres_sql.CLAIM_OTHERS, ["parse"], "ix_lexigram_durable_runs_ready_all"),
        (postgres_sql.CLAIM_OTHERS, [], "ix_lexigram_durable_runs_ready_all"),
    ],
    ids=["one type", "all but one", "all"],
)
async def test_a_claim_of_a_hundred_reads_few_pages_of_a_large_table(
    postgres, statement, which, index
):
    await fill(postgres)
    for plan in await explained(postgres, statement, ("w", "L", 60.0, which, 100)):
        used = [node.get("Index Name") for node in nodes(plan)]
        assert index in used
        seqs = [node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"]
        assert "lexigram_durable_runs" not in seqs
        [found] = [
            node
            for node in nodes(plan)
            if node["Node Type"] == "LockRows" and node["Actual Rows"] == 100
        ]
        assert touched(found) <= CLAIM_BUFFERS


@pytest.mark.service("postgresql")
async def test_what_is_looked_for_by_time_is_found_by_partial_indexes(postgres):
    await fill(postgres)
    for statement, params, limit in (
        (postgres_sql.PROMOTE, (), 50),
        (postgres_sql.REAP, (["w"], ["l"], 25, 600.0), 100),
        (postgres_sql.NEXT_DUE, (), 20),
        (postgres_sql.UNPARK, (), 150),
    ):
        for plan in await explained(postgres, statement, params):
            scans = [
                node
                for node in nodes(plan)
                if node["Node Type"] == "Seq Scan"
                and node["Relation Name"] == "lexigram_durable_runs"
            ]
            assert scans == []
            assert touched(plan) <= limit


@pytest.mark.service("postgresql")
async def test_a_finish_reads_its_own_rows_only(postgres):
    engine = await fill(postgres)
    claimed = await engine.store.claim("w", "L", sqlite_sql.Selection(types=("parse",)), 100)
    ends = [
        End(run_id=claim.run_id, step_no=1, lease="L", kind=EndKind.COMPLETED)
        for claim in claimed.claims
    ]
    (plan, _) = await explained(postgres, postgres_sql.FINISH, (60.0, 600.0, ends_json(ends)))
    seqs = [node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"]
    assert "lexigram_durable_runs" not in seqs
    assert "lexigram_durable_history" not in seqs


async def test_the_plans_in_sqlite_have_the_partial_indexes(sqlite):
    for statement, params, index in (
        (sqlite_sql.CANDIDATES_TYPE, ("parse", 0.0, 9), "ix_lexigram_durable_runs_ready"),
        (sqlite_sql.CANDIDATES_OTHERS, ("[]", 0.0, 9), "ix_lexigram_durable_runs_ready_all"),
        (sqlite_sql.PROMOTE, (0.0,), "ix_lexigram_durable_runs_delayed"),
        (sqlite_sql.EXPIRED, (9, 0.0, "[]", "[]"), "ix_lexigram_durable_runs_leased"),
        (sqlite_sql.UNBLOCK, ("K", "K"), "ix_lexigram_durable_runs_keyed"),
        (sqlite_sql.NEXT_DUE, (0.0,), "ix_lexigram_durable_runs_delayed"),
    ):
        found = await sqlite.execute_query("EXPLAIN QUERY PLAN " + statement, params)
        plan = "\n".join(row["detail"] for row in found.rows)
        assert f"INDEX {index}" in plan, plan
