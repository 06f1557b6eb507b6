"""A real sentence model: all-MiniLM-L6-v2 as its weights are published."""

import anyio
import numpy as np
import pytest
from tests.integration.ai.embeddings import plain_bert
from tests.models import graph_cache, minilm_folder

from lexigram.ai.workers.embeddings import OnnxEmbeddings

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def minilm():
    return OnnxEmbeddings(minilm_folder(), graph_cache=graph_cache(), batch_size=8)


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("how do I bake bread?", "a recipe for a loaf", "the stock market fell"),
        ("my car does not start", "the battery of the vehicle is empty", "I start a new job"),
    ],
)
async def test_the_right_passage_is_nearer(minilm, question, right, wrong):
    asked, good, bad = np.array(await minilm.embed_texts([question, right, wrong]))
    assert asked @ good > asked @ bad + 0.1


async def test_it_is_what_the_folder_says(minilm):
    assert (minilm.dimension, minilm.max_tokens) == (384, 256)
    assert minilm.model_id.startswith("onnx-model-")


async def test_vectors_are_those_of_the_plain_formula(minilm):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    texts = ["How do I bake bread?", "The stock market fell by three percent on Monday."]
    vectors = await minilm.embed_texts([*texts, "a longer text beside them " * 20])
    for text, vector in zip(texts, vectors, strict=False):
        expected = await anyio.to_thread.run_sync(
            plain_bert.vector, minilm_folder(), tokenizer.encode(text).ids
        )
        assert np.abs(expected - np.array(vector)).max() < 1e-5


async def test_tokens_are_counted_beyond_what_its_own_files_cut(minilm):
    """Its tokenizer.json says: cut after 128, pad to 128. Both are wrong for counting."""
    assert await minilm.count_tokens(["bread", "bread " * 300]) == [1, 300]


async def test_a_text_is_cut_at_256_tokens_with_the_closing_one_kept(minilm):
    whole, longer, shorter = await minilm.embed_texts(
        ["bread " * 254, "bread " * 300, "bread " * 99]
    )
    assert np.abs(np.array(whole) - np.array(longer)).max() < 1e-5
    assert np.abs(np.array(whole) - np.array(shorter)).max() > 1e-4
