"""The statements go by the indexes they were made for, however many finished runs there are."""

import json

import pytest

from lexigram.sql.placeholders import number_placeholders
from lexigram.workflow.durable import (
    DurableEngine,
    End,
    EndKind,
    NewRun,
    RunPlan,
    Selection,
    StepPlan,
)
from lexigram.workflow.durable.store import _postgres_statements as postgres_sql
from lexigram.workflow.durable.store import _sqlite_statements as sqlite_sql
from lexigram.workflow.durable.store import statements as shared_sql
from lexigram.workflow.durable.store.records import ends_json

pytestmark = pytest.mark.anyio

FINISHED, READY, BLOCKED = 80_000, 20_000, 2_000
CLAIM_BUFFERS = 300  # to find and lock 100 candidates; the target of a claim
COLUMNS = """group_id, plan_id, priority, turn, rank, status, step_no, n_steps, step_type,
step_kind, resource_key, available_at, created_at, status_at, completed_at, params"""
KINDS = [1, 2, 3, 4, 5]
TYPES = "(ARRAY['parse','chunk','embed','store','route'])[1 + n % 5], 1 + n % 5"


async def fill(db):
    engine = DurableEngine(db)
    types = ("parse", "chunk", "embed", "store", "route")
    steps = [StepPlan(name=kind, step_type=kind, handler="h") for kind in types]
    await engine.submit(RunPlan(workflow_id="w", steps=steps), [NewRun(priority=-99)])
    assert [kind.id for kind in await engine.store.kinds()] == KINDS
    for status, rows, key, done in (
        ("completed", FINISHED, "NULL", "n"),
        ("ready", READY, "NULL", "NULL"),
        ("blocked", BLOCKED, "'K'", "NULL"),
    ):
        await db.execute(
            f"INSERT INTO lexigram_durable_runs ({COLUMNS})"
            f" SELECT 1, 1, 0, n, n / 1000.0, '{status}', 1, 1, {TYPES}, {key}, n, n, n, {done}, '{{}}'"
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
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + number_placeholders(statement)

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
    ("statement", "which"),
    [
        (postgres_sql.CLAIM_KIND, 1),
        (postgres_sql.CLAIM_KINDS, [1, 2]),
        (postgres_sql.CLAIM_KINDS, KINDS),
    ],
    ids=["one kind", "two of them", "all"],
)
async def test_a_claim_of_a_hundred_reads_few_pages_of_a_large_table(postgres, statement, which):
    await fill(postgres)
    for plan in await explained(postgres, statement, ("w", "L", 60.0, None, which, 100)):
        assert_by_index(plan)
        assert found_with(plan, 100) <= CLAIM_BUFFERS


@pytest.mark.service("postgresql")
async def test_ten_thousand_runs_of_an_unknown_handler_in_front_cost_a_claim_nothing(postgres):
    await fill(postgres)
    await postgres.execute(
        "UPDATE lexigram_durable_runs SET rank = 0, step_kind = 6"
        " WHERE status = 'ready' AND rank <= 10"
    )
    await postgres.execute(
        "UPDATE lexigram_durable_runs SET step_kind = 7"
        " WHERE status = 'ready' AND turn BETWEEN 12345 AND 12349"
    )
    await postgres.execute("VACUUM ANALYZE lexigram_durable_runs")
    for statement, which in (
        (postgres_sql.CLAIM_KIND, 7),
        (postgres_sql.CLAIM_KINDS, [7, 8, 9]),
    ):
        for plan in await explained(postgres, statement, ("w", "L", 60.0, None, which, 1)):
            assert_by_index(plan)
            assert found_with(plan, 1) <= 30
    claimed = await DurableEngine(postgres).store.claim(
        "w", "L", Selection(types=(), excluded=True, kinds=[7, 8]), 5
    )
    assert len(claimed.claims) == 1, "what the four above have left"


def assert_by_index(plan):
    assert "ix_lexigram_durable_runs_ready" in [node.get("Index Name") for node in nodes(plan)]
    seqs = [node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"]
    assert "lexigram_durable_runs" not in seqs


def found_with(plan, rows):
    """The pages that a claim reads to find and lock so many candidates, choosing kinds included."""
    parts = {node.get("Subplan Name"): node for node in nodes(plan)}
    assert parts["CTE cand"]["Actual Rows"] == rows
    return sum(touched(parts[name]) for name in ("CTE cand", "CTE first") if name in parts)


@pytest.mark.service("postgresql")
async def test_kinds_and_what_nobody_claims_are_found_by_a_probe_for_each_kind(postgres):
    engine = await fill(postgres)
    await engine.store.heartbeat("w", (), [3, 4, 5])
    for statement, params in (
        (shared_sql.KINDS, ()),
        (shared_sql.UNSERVED, (0.0,)),
    ):
        for plan in await explained(postgres, statement, params):
            seqs = [
                node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"
            ]
            assert "lexigram_durable_runs" not in seqs
            assert touched(plan) <= 60
    assert len(await engine.unserved()) == 3


@pytest.mark.service("postgresql")
async def test_events_that_wait_for_a_handler_are_found_by_their_index_among_many(postgres):
    engine = await fill(postgres)
    for rows, delivered in ((50_000, "n"), (100, "NULL")):
        await postgres.execute(
            "INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at,"
            " run_id, audience, delivered_at)"
            f" SELECT 'item_end', 1, {rows}, 'completed', n, n, 'handler', {delivered}"
            f" FROM generate_series(1, {rows}) n"
        )
    await postgres.execute("VACUUM ANALYZE lexigram_durable_events")
    for statement, params in (
        (postgres_sql.WAITING_EVENTS, ()),
        (postgres_sql.WAITING_EVENTS_OF_GROUP, (1,)),
    ):
        for plan in await explained(postgres, statement, params):
            seqs = [
                node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"
            ]
            assert not {"lexigram_durable_runs", "lexigram_durable_events"} & {*seqs}
            assert touched(plan) <= 1000
    # While no worker lacks a handler, the events are not read.
    await engine.store.heartbeat("w")
    assert await engine.unserved() == []


@pytest.mark.service("postgresql")
async def test_what_is_looked_for_by_time_is_found_by_partial_indexes(postgres):
    await fill(postgres)
    for statement, params, limit in (
        (postgres_sql.PROMOTE, (), 50),
        (postgres_sql.REAP, (["w"], ["l"], 25, 600.0, 30.0), 100),
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
    claimed = await engine.store.claim("w", "L", Selection(types=("parse",)), 100)
    ends = [
        End(run_id=claim.run_id, step_no=1, lease="L", kind=EndKind.COMPLETED)
        for claim in claimed.claims
    ]
    (plan, _) = await explained(postgres, postgres_sql.FINISH, (60.0, 600.0, ends_json(ends)))
    seqs = [node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"]
    assert "lexigram_durable_runs" not in seqs
    assert "lexigram_durable_history" not in seqs


async def test_the_plans_in_sqlite_have_the_partial_indexes(sqlite):
    ready = "ix_lexigram_durable_runs_ready (step_kind=?"
    for statement, params, index in (
        (sqlite_sql.CANDIDATES, (1, 9.0, None, None, 0.0, 9), ready),
        (sqlite_sql.LINES, ("[1, 2]", None, None, 0.0), ready),
        (shared_sql.KINDS, (), ready),
        (shared_sql.UNSERVED, (0.0,), ready),
        (sqlite_sql.WAITING_EVENTS, (), "ix_lexigram_durable_events_handlers"),
        (sqlite_sql.PROMOTE, (0.0,), "ix_lexigram_durable_runs_delayed"),
        (sqlite_sql.EXPIRED, (9, 0.0, "[]", "[]"), "ix_lexigram_durable_runs_leased"),
        (sqlite_sql.UNBLOCK, ("K", "K"), "ix_lexigram_durable_runs_keyed"),
        (sqlite_sql.NEXT_DUE, (0.0,), "ix_lexigram_durable_runs_delayed"),
    ):
        found = await sqlite.execute_query("EXPLAIN QUERY PLAN " + statement, params)
        plan = "\n".join(row["detail"] for row in found.rows)
        assert f"INDEX {index}" in plan, plan
