"""Vectors in LanceDB: writing and searching through the store, beside LanceDB by hand."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import lancedb
import numpy as np
from harness import Case, Facts, Plan, Section, Target, Work, measure

from lexigram.ai.workers.vectors import LanceVectorStore, VectorConfig
from lexigram.ai.workers.vectors.lancedb_rows import rows_of, schema_of
from lexigram.contracts.data.vector import (
    CollectionConfig,
    SearchMode,
    SearchQuery,
    VectorRecord,
)

TITLE = "Vectors"
PEERS = ("lancedb",)

DIMENSION = 256
OURS, ADD, MERGE = "lexigram", "lancedb add", "lancedb merge_insert"
BATCHES = (1, 100, 10_000)
ROWS_A_SECOND = 10_000
TOP = 10
DENSE_MS, HYBRID_MS, RECALL = 10.0, 25.0, 0.98
QUERIES = 50

WRITING = (
    f"Rows of {DIMENSION} numbers and a text. `add` appends and keeps doubles; `merge_insert` replaces "
    "by id, which is what the store does, under its lock. The last work: 30 tasks write a row "
    "each at one time; by hand they take turns, the store gathers them into a commit."
)
SEARCHING = (
    "Vectors around 500 centres, texts of 60 words by Zipf's law. Recall is the part of the exact "
    "ten nearest that is found. By hand: the same query to LanceDB, answered as an Arrow table."
)

CONFIG = CollectionConfig(name="c", dimension=DIMENSION)


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    folder = Path(tempfile.mkdtemp())
    try:
        yield await _writing(plan, folder)
        rows = 20_000 if plan.quick else 100_000
        made = await _filled(folder / "search", rows)
        yield await _recall(rows, *made)
        yield await _searching(plan, rows, *made)
    finally:
        shutil.rmtree(folder)


async def _writing(plan: Plan, folder: Path) -> Section:
    store = LanceVectorStore(folder / "ours")
    ours = await store.create_collection(CONFIG)
    db = await lancedb.connect_async(folder / "hand", read_consistency_interval=timedelta(0))
    added = await db.create_table("added", schema=schema_of(CONFIG))
    merged = await db.create_table("merged", schema=schema_of(CONFIG))
    numbers, data = count(), _Data()

    def rows(size: int) -> tuple[list[VectorRecord], Any]:
        records = data.records(next(numbers) * 100_000, size)
        matrix = np.asarray([record.vector for record in records], dtype=np.float32)
        return records, rows_of(records, matrix, schema_of(CONFIG))

    async def merge(table: Any) -> None:
        builder = merged.merge_insert("id")
        await builder.when_matched_update_all().when_not_matched_insert_all().execute(table)

    works = []
    for size in BATCHES:
        large = size == max(BATCHES)
        limit = Target(1000.0 * size / ROWS_A_SECOND) if large else Target(1.5, MERGE)
        cases = [
            Case(MERGE, _each(lambda size=size: rows(size)[1], merge), loops=1),
            Case(OURS, _each(lambda size=size: rows(size)[0], ours.upsert), loops=1),
            Case(ADD, _each(lambda size=size: rows(size)[1], added.add), loops=1),
        ]
        works.append(Work(f"write {size:,} rows", "ms", MERGE, cases, {OURS: limit}))

    async def at_once(records: list[VectorRecord]) -> None:
        async with anyio.create_task_group() as tasks:
            for record in records:
                tasks.start_soon(ours.upsert, [record])

    async def in_turn(tables: list[Any]) -> None:
        for table in tables:
            await merge(table)

    cases = [
        Case(MERGE, _each(lambda: [rows(1)[1] for _ in range(30)], in_turn), loops=1),
        Case(OURS, _each(lambda: rows(30)[0], at_once), loops=1),
    ]
    works.append(Work("30 tasks write a row", "ms", MERGE, cases, {OURS: Target(0.2, MERGE)}))
    await measure(works, plan, rounds=plan.few(15))
    await store.disconnect()
    return Section("Writing", WRITING, works)


async def _filled(folder: Path, rows: int) -> tuple[Any, Any, list[Any], list[str]]:
    """The collection with its indexes, the same table by hand, and queries."""
    store = LanceVectorStore(folder, VectorConfig(flat_below=10_000))
    ours, data = await store.create_collection(CONFIG), _Data()
    for start in range(0, rows, 10_000):
        await ours.upsert(data.records(start, 10_000))
    await store.vacuum()
    table = await (await lancedb.connect_async(folder)).open_table("c")
    return ours, table, *data.queries(QUERIES)


async def _recall(rows: int, ours: Any, table: Any, vectors: list[Any], texts: list[str]) -> Facts:
    hits = 0
    for vector in vectors:
        query = table.query().nearest_to(vector).distance_type("cosine").bypass_vector_index()
        exact = await query.select(["id", "_distance"]).limit(TOP).to_arrow()
        found = await ours.search(SearchQuery(vector=vector, top_k=TOP))
        hits += len(set(exact["id"].to_pylist()) & {hit.id for hit in found})
    recall = hits / (TOP * len(vectors))
    verdict = "met" if recall >= RECALL else "MISSED"
    return Facts(
        "Recall",
        SEARCHING,
        ["recall@10 of the index", "rows", "measured", "target", ""],
        [["IVF_RQ, refined", f"{rows:,}", f"{recall:.3f}", f"≥ {RECALL}", verdict]],
    )


async def _searching(
    plan: Plan, rows: int, ours: Any, table: Any, vectors: list[Any], texts: list[str]
) -> Section:
    turn = count()
    columns = ["id", "content", "metadata"]

    def next_query(mode: SearchMode) -> SearchQuery:
        at = next(turn) % len(vectors)
        return SearchQuery(vector=vectors[at], text=texts[at], top_k=TOP, mode=mode)

    async def dense_by_hand(query: SearchQuery) -> None:
        built = table.query().nearest_to(query.vector).distance_type("cosine")
        built = built.nprobes(40).refine_factor(10).select([*columns, "_distance"])
        await built.limit(TOP).to_arrow()

    async def flat_by_hand(query: SearchQuery) -> None:
        built = table.query().nearest_to(query.vector).distance_type("cosine")
        built = built.bypass_vector_index().select([*columns, "_distance"])
        await built.limit(TOP).to_arrow()

    async def words_by_hand(query: SearchQuery) -> None:
        built = table.query().nearest_to_text(query.text).select([*columns, "_score"])
        await built.limit(TOP).to_arrow()

    def case(who: str, mode: SearchMode, call: Callable[[SearchQuery], Awaitable[Any]]) -> Case:
        return Case(who, _each(lambda: next_query(mode), call), loops=3)

    hand = "lancedb by hand"
    dense = [
        case(hand, SearchMode.DENSE, dense_by_hand),
        case(OURS, SearchMode.DENSE, ours.search),
        case("lancedb, every vector compared", SearchMode.DENSE, flat_by_hand),
    ]
    words = [
        case(hand, SearchMode.TEXT, words_by_hand),
        case(OURS, SearchMode.TEXT, ours.search),
        case("lexigram hybrid", SearchMode.HYBRID, ours.search),
    ]
    works = [
        Work(f"search by vector, {rows:,} rows", "ms", hand, dense, {OURS: Target(DENSE_MS)}),
        Work(
            f"search by words, {rows:,} rows",
            "ms",
            hand,
            words,
            {"lexigram hybrid": Target(HYBRID_MS)},
        ),
    ]
    await measure(works, plan, rounds=plan.few(41))
    return Section("Searching", "", works)


def _each(make: Callable[[], Any], call: Callable[[Any], Awaitable[Any]]) -> Any:
    """A run that times the call alone, not the making of what it is called with."""

    async def run(loops: int) -> int:
        spent = 0
        for _ in range(loops):
            given = make()
            start = time.perf_counter_ns()
            await call(given)
            spent += time.perf_counter_ns() - start
        return spent

    return run


class _Data:
    """Vectors around centres and texts of words, the same in every run."""

    def __init__(self) -> None:
        self._chance = np.random.default_rng(7)
        self._centres = self._chance.standard_normal((500, DIMENSION)).astype(np.float32)
        self._words = np.asarray([f"word{n}" for n in range(5_000)])
        often = 1 / np.arange(1, 5_001)
        self._often = often / often.sum()

    def vectors(self, size: int) -> Any:
        around = self._centres[self._chance.integers(0, 500, size)]
        noise = 0.7 * self._chance.standard_normal((size, DIMENSION))
        return (around + noise).astype(np.float32)

    def texts(self, size: int, words: int) -> list[str]:
        picked = self._chance.choice(self._words, (size, words), p=self._often)
        return [" ".join(line) for line in picked]

    def records(self, start: int, size: int) -> list[VectorRecord]:
        pairs = zip(self.vectors(size), self.texts(size, 60), strict=True)
        return [
            VectorRecord(
                id=f"{start + n:032x}",
                vector=vector,
                content=text,
                metadata={"document_id": f"d{(start + n) // 20}", "chunk_index": n % 20},
            )
            for n, (vector, text) in enumerate(pairs)
        ]

    def queries(self, size: int) -> tuple[list[Any], list[str]]:
        return list(self.vectors(size)), self.texts(size, 4)
