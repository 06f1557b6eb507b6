"""Texts into vectors: each provider beside its own library, then the cache and the whole worker."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

from anyio import to_thread
from harness import Case, Plan, Section, Target, Work, measure

from lexigram.ai.workers.batch_embedding import BatchEmbeddingWorker, EmbeddingCache
from lexigram.ai.workers.batch_embedding.cache import embed_with_cache
from lexigram.ai.workers.embeddings import HashingEmbeddings, WordLlamaEmbeddings
from lexigram.ai.workers.vectors.memory import MemoryVectorStore
from lexigram.tasks import InMemoryTaskQueue

TITLE = "Embeddings"
PEERS = ("wordllama",)
LIBRARY, OURS = "wordllama's own embed", "lexigram"
PLAIN, CACHED, WORKER = "the model in a plain loop", "all texts known", "as a job, stored in memory"
TEXTS = 256
NOTE = (
    f"{TEXTS} pieces of 900 characters of our own documentation; the figure is for one piece. The "
    "library is called in a thread, as it blocks; it pads the texts of a batch to one length, we do not."
)


async def parts(plan: Plan) -> AsyncIterator[Section]:
    texts = _texts()
    library = await to_thread.run_sync(_library)
    ours = WordLlamaEmbeddings()

    async def theirs() -> None:
        await to_thread.run_sync(lambda: library.embed(texts, norm=True).tolist())

    model = Work(
        "wordllama",
        "µs",
        LIBRARY,
        [
            Case(LIBRARY, _timed(theirs), loops=1),
            Case(OURS, _timed(lambda: ours.embed_texts(texts)), loops=1),
        ],
        {OURS: Target(1.0, LIBRARY)},
    )
    await measure([model], plan, plan.few(25))
    yield Section("The embedded model", NOTE, [model])
    for provider in (HashingEmbeddings(), ours):
        yield await _around(provider, texts, plan)


async def _around(provider, texts: list[str], plan: Plan) -> Section:
    cache = EmbeddingCache()
    await embed_with_cache(provider, cache, texts)

    async def plain() -> None:
        for start in range(0, len(texts), 64):
            await provider.embed_texts(texts[start : start + 64])

    async def job() -> None:
        worker = BatchEmbeddingWorker(
            MemoryVectorStore(), provider, InMemoryTaskQueue(), enable_cache=False
        )
        job_id = await worker.embed_batch(texts, "docs", batch_size=64)
        await worker.drain()
        assert (await worker.get_result(job_id)).embeddings_generated == len(texts)

    work = Work(
        provider.model_id,
        "µs",
        PLAIN,
        [
            Case(PLAIN, _timed(plain), loops=1),
            Case(CACHED, _timed(lambda: embed_with_cache(provider, cache, texts)), loops=1),
            Case(WORKER, _timed(job), loops=1),
        ],
    )
    await measure([work], plan, plan.few(25))
    note = "What the cache saves, and what queue, checks, ids and storing cost, for one piece."
    return Section(f"Cache and worker around {provider.model_id}", note, [work])


def _timed(act):
    """Nanoseconds for one text."""

    async def run(loops: int) -> int:
        start = time.perf_counter_ns()
        for _ in range(loops):
            await act()
        return (time.perf_counter_ns() - start) // TEXTS

    return run


def _texts() -> list[str]:
    docs = Path(__file__).resolve().parents[2] / "docs"
    whole = "\n".join(path.read_text(encoding="utf-8") for path in sorted(docs.rglob("*.md")))
    return [whole[n * 900 : (n + 1) * 900] for n in range(TEXTS)]


def _library():
    import wordllama

    folder = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
