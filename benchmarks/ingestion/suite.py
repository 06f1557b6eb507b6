"""Files into the index: durable runs beside the same stages in a plain loop, and how well it finds."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

from harness import Case, Facts, Plan, Section, Target, Work, measure
from ingestion.quality import qualities

from lexigram.ai.workers.cli.embedded import create_embedded_application
from lexigram.ai.workers.cli.ingestion import FileIngestion, Outcome, Request
from lexigram.ai.workers.document_ingestion.chunker import DocumentChunker
from lexigram.ai.workers.document_ingestion.parser import UniversalDocumentParser
from lexigram.ai.workers.document_ingestion.stages import (
    DocumentFacts,
    chunk_document_text,
    ensure_collection,
    document_id_of,
    build_records,
    embed_chunks,
)
from lexigram.ai.workers.embeddings import HashingEmbeddings, WordLlamaEmbeddings
from lexigram.ai.workers.module import WorkersModule
from lexigram.ai.workers.vectors.lancedb import LanceVectorStore
from lexigram.app import Application
from lexigram.config import LexigramConfig

TITLE = "Ingestion"
PEERS = ("lancedb", "wordllama")
PLAIN, OURS = "the stages in a plain loop", "lexigram ingest"
CHUNKS_A_SECOND = {"hashing": 500, "wordllama": 350}
OF_PLAIN = 0.7
FILES_AGAIN, SECONDS_AGAIN, STUB_MS = 500, 2.0, 50.0
NOTE = (
    "Files of some twenty chunks, out of our own documentation; the figure is for one chunk. The plain "
    "loop parses, chunks, embeds and stores one file after the other and keeps nothing else: no runs, "
    "no artifacts, no cache. Ours is the embedded application of the command line, started, with an "
    "empty folder for each round. {target} chunks a second are {limit:.2f} ms."
)
DOCS = Path(__file__).resolve().parents[2] / "docs"


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    folder = Path(tempfile.mkdtemp())
    try:
        files = written(folder / "files", 30 if plan.quick else 150)
        for name in CHUNKS_A_SECOND:
            yield await _ingesting(plan, folder, files, name)
        yield await _again(folder, plan)
        yield await _stub(plan)
        yield await qualities(folder / "quality")
    finally:
        shutil.rmtree(folder)


async def _ingesting(plan: Plan, folder: Path, files: Path, name: str) -> Section:
    places = (folder / f"{name}-{number}" for number in count())
    chunks = await in_plain_loop(files, next(places), name)

    async def plain(place: Path) -> float:
        began = time.perf_counter_ns()
        assert await in_plain_loop(files, place, name) == chunks
        return time.perf_counter_ns() - began

    async def ours(place: Path) -> float:
        async with application(place, name) as app:
            ingestion = await app.container.call(FileIngestion)
            began = time.perf_counter_ns()
            outcome: Outcome = await ingestion.run(Request(paths=[files]))
            spent = time.perf_counter_ns() - began
        assert (outcome.statistics.stored, outcome.bad) == (chunks, [])
        return spent

    def each(act: Callable[[Path], Awaitable[float]]) -> Any:
        async def run(loops: int) -> int:
            spent = 0.0
            for _ in range(loops):
                place = next(places)
                spent += await act(place)
                shutil.rmtree(place)
            return int(spent / chunks)

        return run

    limit = 1000.0 / CHUNKS_A_SECOND[name]
    cases = [Case(PLAIN, each(plain), loops=1), Case(OURS, each(ours), loops=1)]
    works = [
        Work(f"{name}, one chunk", "ms", PLAIN, cases, {OURS: Target(limit)}),
    ]
    await measure(works, plan, rounds=plan.few(15))
    # The same samples under the other promise.
    works.append(
        Work(f"{name}, beside the loop", "ms", PLAIN, cases, {OURS: Target(1 / OF_PLAIN, PLAIN)})
    )
    note = NOTE.format(target=CHUNKS_A_SECOND[name], limit=limit)
    return Section(f"Files to chunks in the index, {name}", note, works)


async def in_plain_loop(files: Path, place: Path, name: str) -> int:
    """The same stages, called one after the other; how many chunks."""
    provider = HashingEmbeddings() if name == "hashing" else WordLlamaEmbeddings()
    parser, chunker = UniversalDocumentParser(), DocumentChunker()
    store = LanceVectorStore(place)
    total = 0
    for path in sorted(files.iterdir()):
        document = await parser.parse_bytes(path.read_bytes(), str(path))
        chunks = await chunk_document_text(document, chunker, parser.isolation, str(path))
        vectors, _ = await embed_chunks(chunks, provider, None, batch_size=1000)
        facts = DocumentFacts(
            document_id=document_id_of("files", str(path)),
            doc_hash="",
            config_key="",
            source="files",
            uri=str(path),
        )
        records = build_records(facts, chunks, vectors, provider.model_id)
        collection = await ensure_collection(
            store, "documents", model_id=provider.model_id, dimension=provider.dimension
        )
        await collection.replace({"document_id": facts.document_id}, records)
        total += len(chunks)
    await store.disconnect()
    return total


async def _again(folder: Path, plan: Plan) -> Facts:
    number = 50 if plan.quick else FILES_AGAIN
    files = written(folder / "many", number, parts=4)
    async with application(folder / "again", "hashing") as app:
        ingestion = await app.container.call(FileIngestion)
        first: Outcome = await ingestion.run(Request(paths=[files]))
    async with application(folder / "again", "hashing") as app:
        ingestion = await app.container.call(FileIngestion)
        again: Outcome = await ingestion.run(Request(paths=[files]))
    assert (first.indexed, again.unchanged, again.statistics.embedded) == (number, number, 0)
    verdict = "met" if again.seconds <= SECONDS_AGAIN else "MISSED"
    line = [f"{number} unchanged files", f"{again.seconds:.2f} s", "0", f"≤ {SECONDS_AGAIN:g} s"]
    return Facts(
        "Ingesting again",
        "From the start of the work in a new application, every file read and hashed, to its end.",
        ["work", "measured", "embeddings computed", "target", ""],
        [[*line, verdict]],
    )


async def _stub(plan: Plan) -> Facts:
    spent = []
    for _ in range(plan.few(25)):
        began = time.perf_counter()
        async with Application("x", LexigramConfig(), modules=[WorkersModule.stub()]):
            spent.append((time.perf_counter() - began) * 1000)
    median = sorted(spent)[len(spent) // 2]
    verdict = "met" if median <= STUB_MS else "MISSED"
    line = ["WorkersModule.stub()", f"{median:.1f} ms", f"≤ {STUB_MS:g} ms", verdict]
    note = "From the construction of an application with nothing else in it until it runs."
    return Facts("A stub in a test", note, ["work", "median", "target", ""], [line])


def application(place: Path, model: str) -> Application:
    """The embedded one; settings in the file that users would write."""
    place.mkdir(parents=True, exist_ok=True)
    settings = f"ai_workers:\n  embeddings:\n    provider: {model}\n"
    (place / "application.yaml").write_text(settings, encoding="utf-8")
    app = create_embedded_application(place)
    app.background_enabled = False
    return app


def written(folder: Path, files: int, parts: int = 20) -> Path:
    """Files of so many sections of our own documentation, no two of them equal."""
    folder.mkdir(parents=True)
    chance = random.Random(8)
    pages = [path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))]
    whole = "\n".join(page for page in pages if len(page) < 50_000).replace("#", "").split("\n\n")
    for number in range(files):
        text = [f"# File {number}"]
        for part in range(parts):
            begin = chance.randrange(len(whole) - 40)
            words = " ".join(whole[begin : begin + 40])[:1800]
            text.append(f"## Part {part} of {number}\n\n{words}")
        (folder / f"{number:04}.md").write_text("\n\n".join(text), encoding="utf-8")
    return folder
