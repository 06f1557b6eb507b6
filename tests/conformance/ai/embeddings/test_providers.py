from contextlib import asynccontextmanager

import pytest
from tests.integration.ai.embeddings import tiny_bert
from tests.integration.ai.embeddings.endpoint import DIMENSION, serving

from lexigram.ai.workers.embeddings import (
    EmbeddingConfig,
    HashingEmbeddings,
    NamedEmbeddings,
    OnnxEmbeddings,
    OpenAIEmbeddings,
    WordLlamaEmbeddings,
)
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.embeddings import EmbeddingCapability, EmbeddingConformance

ALL = set(EmbeddingCapability)

TestWordLlama = conformance_suite(EmbeddingConformance, WordLlamaEmbeddings, capabilities=ALL)

TestHashing = conformance_suite(
    EmbeddingConformance, HashingEmbeddings, capabilities=ALL - {EmbeddingCapability.MEANING}
)


def named():
    inner = HashingEmbeddings(64)
    return NamedEmbeddings(inner, model_id="mine", dimension=64)


TestNamed = conformance_suite(
    EmbeddingConformance, named, capabilities=ALL - {EmbeddingCapability.MEANING}
)


class TestOnnx(EmbeddingConformance):
    """Its weights are random: it computes what a real one computes, and knows no meaning."""

    capabilities = ALL - {EmbeddingCapability.MEANING}

    @pytest.fixture
    def subject(self, tmp_path):
        folder = tiny_bert.write(tmp_path / "tiny")
        return OnnxEmbeddings(folder, graph_cache=tmp_path / "graphs", batch_size=8, threads=1)


@asynccontextmanager
async def openai():
    async with serving() as endpoint:
        config = EmbeddingConfig(
            provider="openai", model="test", dimension=DIMENSION, url=endpoint.url, batch_size=9
        )
        provider = OpenAIEmbeddings(config)
        yield provider
        await provider.aclose()


TestOpenAI = conformance_suite(
    EmbeddingConformance,
    openai,
    capabilities={EmbeddingCapability.VECTORS, EmbeddingCapability.LONG_TEXTS},
)
