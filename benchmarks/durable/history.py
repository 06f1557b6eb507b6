"""What a long history costs: claims beside many finished runs, and their removal."""

from __future__ import annotations

import statistics
import time

import anyio
import orjson

from durable.ours import STEPS, Ours
from harness import Facts
from lexigram.sql.placeholders import number_placeholders
from lexigram.workflow.durable import ANYTHING, DurableEngine, End, EndKind, NewRun
from lexigram.workflow.durable.store import _postgres_statements as sql

FEW, MANY, QUICK = 1_000, 1_000_000, 50_000
BUFFERS = 300
CLAIM = 100
GROUP = 1_000  # runs in each finished group
GROWTH = 1.5
ROUNDS = 15
_CHUNK = 50_000

_GROUPS = """
INSERT INTO lexigram_durable_groups (name, workflow_id, status, total, remaining, endings,
    created_at, started_at, completed_at, plan_id)
SELECT 'old', 'bench', 'completed', ?, 0, 1, 1, 1, 2, ? FROM generate_series(1, CAST(? AS int))
RETURNING id"""
# Finished runs as workers leave them, or ready ones, with an attempt in the history each.
_RUNS = """
WITH r AS (
    INSERT INTO lexigram_durable_runs (group_id, plan_id, priority, turn, rank, status, step_no,
        n_steps, step_type, step_kind, available_at, fence, created_at, status_at, completed_at,
        params)
    SELECT CAST(? AS bigint) + n / CAST(? AS int), s.plan_id, n % 3, n, n,
        CAST(? AS text), CASE WHEN CAST(? AS text) = 'ready' THEN 1 ELSE 5 END, 5, s.step_type,
        s.step_kind, 1, 5, 1, 2, CASE WHEN CAST(? AS text) = 'ready' THEN NULL ELSE 2 END, '{}'
    FROM generate_series(0, CAST(? AS int) - 1) AS n
    JOIN lexigram_durable_plan_steps s ON s.plan_id = CAST(? AS bigint) AND s.step_no = 1
    RETURNING id)
INSERT INTO lexigram_durable_history (run_id, fence, step_no, retry, status, finished_at)
SELECT id, 1, 1, 0, 'COMPLETED', 2 FROM r WHERE CAST(? AS text) <> 'ready'"""


async def facts(ours: Ours, *, quick: bool) -> Facts:
    """A claim and a step beside few and beside many finished runs; then the many are removed."""
    many = QUICK if quick else MANY
    engine = ours.engine
    plan_id = await _plan_id(ours)
    lines: list[list[str]] = []
    spent: dict[int, float] = {}
    for finished, ready in ((FEW, FEW // 5), (many, many // 5)):
        await _fill(engine, plan_id, finished, "completed")
        await _fill(engine, plan_id, ready, "ready")
        await engine.database.execute("VACUUM ANALYZE")
        found, chosen, whole = await _buffers(engine)
        spent[finished] = await _step_ms(engine)
        kept = "kept" if found <= BUFFERS else "missed"
        name = f"claim of {CLAIM}, {finished:,} finished and {ready:,} ready runs"
        told = (
            f"{found} buffers to find them, {chosen} to choose among {len(STEPS)} kinds of steps,"
            f" {whole} with all that is written"
        )
        lines.append([name, told, f"≤ {BUFFERS} to find them", kept])
    growth = spent[many] / spent[FEW]
    name = f"claim and finish of {CLAIM}, {many:,} beside {FEW:,} finished runs"
    told = f"{spent[many]:.1f} beside {spent[FEW]:.1f} ms ({growth:.2f}x)"
    lines.append([name, told, f"≤ {GROWTH:g}x", "kept" if growth <= GROWTH else "missed"])
    lines.append(await _pruned(engine, many, spent[many]))
    note = (
        "PostgreSQL. Buffers are the pages that EXPLAIN (ANALYZE, BUFFERS) counts for one claim"
        f" of {CLAIM} steps. The removal is by retention, in transactions of 500 runs; meanwhile"
        f" the worker's claims and finishes go on, and their slowest and median are told."
    )
    return Facts("A long history", note, ["work", "measured", "target", ""], lines)


async def _plan_id(ours: Ours) -> int:
    submitted = await ours.engine.submit(ours.plan, [NewRun()])
    row = await ours.engine.store.run(submitted.runs[0])
    assert row is not None
    await ours.engine.cancel(group_id=submitted.group_id)
    return int(row["plan_id"])


async def _fill(engine: DurableEngine, plan_id: int, count: int, status: str) -> None:
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        groups = -(-size // GROUP)
        found = await engine.database.execute(_GROUPS, (GROUP, plan_id, groups))
        first = min(row["id"] for row in found.rows)
        if status == "ready":
            await engine.database.execute(
                "UPDATE lexigram_durable_groups SET status = 'running', completed_at = NULL,"
                " remaining = total WHERE id >= ?",
                (first,),
            )
        place = (first, GROUP, status, status, status, size, plan_id, status)
        await engine.database.execute(_RUNS, place)


async def _buffers(engine: DurableEngine) -> tuple[int, int, int]:
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {number_placeholders(sql.CLAIM_KINDS)}"
    kinds = [kind.id for kind in await engine.store.kinds()]

    async def work(connection):
        rows = await connection.driver.fetch(explain, "w", "L", 600.0, None, kinds, CLAIM)
        await connection.driver.execute("ROLLBACK AND CHAIN")
        return rows[0][0]

    plan = orjson.loads(await engine.database.run(work))[0]["Plan"]
    parts = {part.get("Subplan Name"): _blocks(part) for part in plan["Plans"]}
    return parts["CTE cand"], parts["CTE first"], _blocks(plan)


def _blocks(plan: dict[str, int]) -> int:
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


async def _step_ms(engine: DurableEngine) -> float:
    """Median of claiming and finishing steps for good."""
    return statistics.median([await _once(engine, str(n)) for n in range(ROUNDS)][ROUNDS // 3 :])


async def _once(engine: DurableEngine, lease: str) -> float:
    start = time.perf_counter()
    claims = (await engine.store.claim("bench", lease, ANYTHING, CLAIM)).claims
    await engine.store.finish([_end(claim.run_id, claim.step_no, lease) for claim in claims])
    assert claims
    return (time.perf_counter() - start) * 1e3


def _end(run_id: int, step_no: int, lease: str) -> End:
    last = step_no == len(STEPS)
    kind = EndKind.COMPLETED if last else EndKind.RELEASED
    return End(run_id=run_id, step_no=step_no, lease=lease, kind=kind, message="ok", is_plain=True)


async def _pruned(engine: DurableEngine, many: int, before: float) -> list[str]:
    """Remove all that has ended while steps are claimed and finished beside it."""
    times: list[float] = []
    removed = 0
    start = time.perf_counter()
    async with anyio.create_task_group() as tasks:

        async def claim_on() -> None:
            number = 0
            while True:
                number += 1
                times.append(await _once(engine, f"p{number}"))
                await anyio.sleep(0.01)

        tasks.start_soon(claim_on)
        while gone := await engine.prune(0.0):
            removed += gone
        tasks.cancel_scope.cancel()
    seconds = time.perf_counter() - start
    assert removed >= many, (removed, many)
    slowest, median = max(times), statistics.median(times)
    told = f"{removed / seconds:,.0f} runs/s; {median:.1f} ms, slowest {slowest:.0f} ms"
    target = "no claim waits for the removal (≤ 1 s)"
    kept = "kept" if slowest <= 1000.0 else "missed"
    name = f"removing {removed:,} runs, with claims beside (before: {before:.1f} ms)"
    return [name, told, target, kept]
