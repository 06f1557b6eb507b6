"""A small check of how well passages are found: 60 passages and 30 questions of our own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness import Facts
from ingestion.passages import PASSAGES, QUESTIONS

from lexigram.ai.workers.embeddings import WordLlamaEmbeddings
from lexigram.ai.workers.vectors.lancedb import LanceVectorStore
from lexigram.contracts.data.vector import (
    CollectionConfig,
    SearchMode,
    SearchQuery,
    VectorCollectionProtocol,
    VectorRecord,
)

NOTE = (
    "60 passages on 20 subjects, so that three of them are always close; 30 questions, most of them in "
    "other words than their passage. Printed, not promised."
)
NAMES = {SearchMode.DENSE: "dense", SearchMode.TEXT: "words", SearchMode.HYBRID: "hybrid"}


async def qualities(folder: Path) -> Facts:
    """Recall of every way to search."""
    model = WordLlamaEmbeddings()
    store = LanceVectorStore(folder)
    collection = await store.create_collection(
        CollectionConfig(name="passages", dimension=model.dimension, model_id=model.model_id)
    )
    texts = list(PASSAGES.values())
    vectors = await model.embed_texts(texts)
    rows = zip(PASSAGES, vectors, texts, strict=True)
    await collection.upsert([VectorRecord(id=i, vector=v, content=t) for i, v, t in rows])
    asked = await model.embed_texts(list(QUESTIONS))
    lines = []
    for mode, name in NAMES.items():
        places = [
            await _place(collection, mode, question, vector, wanted)
            for (question, wanted), vector in zip(QUESTIONS.items(), asked, strict=True)
        ]
        recall = [sum(place <= k for place in places) / len(places) for k in (1, 5)]
        lines.append([name, f"{recall[0]:.2f}", f"{recall[1]:.2f}"])
    await store.disconnect()
    head = [f"{model.model_id}, search by", "recall@1", "recall@5"]
    return Facts("How well it finds", NOTE, head, lines)


async def _place(
    collection: VectorCollectionProtocol,
    mode: SearchMode,
    question: str,
    vector: Sequence[float],
    wanted: str,
) -> int:
    query = SearchQuery(vector=vector, text=question, top_k=5, mode=mode)
    found = [one.id for one in await collection.search(query)]
    return found.index(wanted) + 1 if wanted in found else 99
