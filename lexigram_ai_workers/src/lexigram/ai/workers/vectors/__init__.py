"""Vector stores: LanceDB (embedded), Qdrant (an extra), memory (for tests)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.ai.workers.vectors.choose import VectorStores, choose_store
    from lexigram.ai.workers.vectors.config import VectorConfig
    from lexigram.ai.workers.vectors.databases import VectorDatabases
    from lexigram.ai.workers.vectors.lancedb import LanceVectorStore
    from lexigram.ai.workers.vectors.locks import hold_rag_lock, rag_key
    from lexigram.ai.workers.vectors.memory import MemoryVectorStore
    from lexigram.ai.workers.vectors.qdrant import QdrantVectorStore
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.ai.workers.vectors.choose": ["VectorStores", "choose_store"],
            "lexigram.ai.workers.vectors.config": ["VectorConfig"],
            "lexigram.ai.workers.vectors.databases": ["VectorDatabases"],
            "lexigram.ai.workers.vectors.lancedb": ["LanceVectorStore"],
            "lexigram.ai.workers.vectors.locks": ["hold_rag_lock", "rag_key"],
            "lexigram.ai.workers.vectors.memory": ["MemoryVectorStore"],
            "lexigram.ai.workers.vectors.qdrant": ["QdrantVectorStore"],
        },
    )

__all__ = [
    "LanceVectorStore",
    "MemoryVectorStore",
    "QdrantVectorStore",
    "VectorConfig",
    "VectorDatabases",
    "VectorStores",
    "choose_store",
    "hold_rag_lock",
    "rag_key",
]
