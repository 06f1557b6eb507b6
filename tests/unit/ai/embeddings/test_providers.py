"""What each embedded provider does beyond the shipped suite."""

import os
import subprocess
import sys

import anyio
import numpy as np
import pytest

from lexigram.ai.workers.embeddings import (
    EmbeddingConfig,
    EmbeddingInputError,
    EmbeddingMismatchError,
    EmbeddingModelError,
    HashingEmbeddings,
    NamedEmbeddings,
    OpenAIEmbeddings,
    WordLlamaEmbeddings,
    close_embeddings,
    make_embeddings,
    open_embeddings,
)
from lexigram.config import SecretStr

pytestmark = pytest.mark.anyio
TEXTS = ["how to bake bread", "bread", "x" * 3000, "naïve café 語 🙂"]


async def test_wordllama_gives_what_its_own_library_gives():
    import wordllama

    folder = wordllama.__file__.rpartition("/")[0]
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    theirs = await anyio.to_thread.run_sync(lambda: model.embed(TEXTS, norm=True))
    ours = await WordLlamaEmbeddings(batch_size=2).embed_texts(TEXTS)
    assert np.abs(np.array(ours) - theirs).max() < 1e-6


async def test_wordllama_counts_tokens_without_cutting():
    few, many = await WordLlamaEmbeddings().count_tokens(["bread", "bread " * 5000])
    assert few < 5
    assert many >= 5000


def test_wordllama_loads_without_network_and_leaves_logging_alone():
    code = """
import logging, socket
def refuse(*args, **kwargs): raise AssertionError("went to the network")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
import anyio
from lexigram.ai.workers.embeddings import WordLlamaEmbeddings
before = logging.getLogger().handlers[:], logging.getLogger().level
vectors = anyio.run(WordLlamaEmbeddings().embed_texts, ["bread"])
assert len(vectors[0]) == 256
assert (logging.getLogger().handlers, logging.getLogger().level) == before
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50, env={"HOME": "/nowhere"})


def test_choosing_imports_no_model():
    code = """
import sys
from lexigram.ai.workers.embeddings import EmbeddingConfig, make_embeddings
for config in (EmbeddingConfig(), EmbeddingConfig(provider="hashing")):
    make_embeddings(config).model_id
heavy = {"wordllama", "tokenizers", "onnxruntime", "onnx", "numpy", "httpx"} & sys.modules.keys()
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)


def test_hashing_says_that_it_is_for_tests_only():
    assert "tests-only" in HashingEmbeddings().model_id
    assert "FOR TESTS ONLY" in HashingEmbeddings.__doc__


def test_hashing_is_equal_in_every_process():
    code = """
import anyio
from lexigram.ai.workers.embeddings import HashingEmbeddings
print(anyio.run(HashingEmbeddings(8).embed_texts, ["the cat sat on the mat"]))
"""
    said = {
        subprocess.check_output(
            [sys.executable, "-c", code], timeout=50, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    }
    assert len(said) == 1


async def test_hashing_has_a_vector_for_words_that_cancel_each_other_out():
    words = [f"w{n}" for n in range(200)]
    vectors = await HashingEmbeddings(1).embed_texts(
        [f"{a} {b}" for a in words[:20] for b in words]
    )
    assert {abs(vector[0]) for vector in vectors} == {1.0}


async def test_named_embeddings_check_what_they_get():
    class Short:
        async def embed_texts(self, texts):
            return [[1.0, 2.0]]

    with pytest.raises(EmbeddingMismatchError, match="1 vectors for 2 texts"):
        await NamedEmbeddings(Short(), model_id="m", dimension=2).embed_texts(["a", "b"])
    with pytest.raises(EmbeddingMismatchError, match="of length 2 for text 0, not 3"):
        await NamedEmbeddings(Short(), model_id="m", dimension=3).embed_texts(["a"])


async def test_the_error_about_an_empty_text_names_it():
    with pytest.raises(EmbeddingInputError, match="text 1 of 2 is empty") as caught:
        await HashingEmbeddings().embed_texts(["a", "  "])
    assert caught.value.details == {"index": 1}


async def test_the_settings_choose_the_provider():
    assert isinstance(await open_embeddings(EmbeddingConfig()), WordLlamaEmbeddings)
    assert make_embeddings(EmbeddingConfig(provider="hashing", dimension=32)).dimension == 32
    config = EmbeddingConfig(provider="openai", model="text-embedding-3-small")
    provider = make_embeddings(config)
    assert isinstance(provider, OpenAIEmbeddings)
    await close_embeddings(provider)
    await close_embeddings(HashingEmbeddings())


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"provider": "onnx"}, "requires embeddings.model"),
        ({"provider": "onnx", "model": "/nowhere/at/all"}, "not a folder of a sentence model"),
        ({"provider": "wordllama", "model": "l3_supercat"}, "does not support a model name"),
        ({"provider": "wordllama", "dimension": 64}, "dimension 256, not 64"),
        ({"provider": "openai"}, "requires embeddings.model"),
    ],
)
async def test_settings_that_cannot_work_say_so(settings, problem):
    with pytest.raises(EmbeddingModelError, match=problem):
        await open_embeddings(EmbeddingConfig(**settings))


def test_settings_never_show_the_key():
    config = EmbeddingConfig(api_key=SecretStr("sk-4711"))
    assert "4711" not in repr(config)


def test_the_key_comes_from_the_environment_and_is_not_shown():
    from lexigram.ai.workers.config import WorkersConfig

    config = WorkersConfig.from_env({"LEX_AI_WORKERS__EMBEDDINGS__API_KEY": "sk-4711"})
    assert config.embeddings.api_key.reveal() == "sk-4711"
    assert "4711" not in repr(config)
