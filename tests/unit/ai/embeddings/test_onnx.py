"""Local models: what is read from their folder, and graphs made from weights."""

import json
from threading import Thread

import anyio
import numpy as np
import pytest
from tests.integration.ai.embeddings import plain_bert, tiny_bert

from lexigram.ai.workers.embeddings import EmbeddingModelError, OnnxEmbeddings
from lexigram.ai.workers.embeddings.onnx_graph import bert_graph

TEXTS = ["a", "bread and butter", "one two three four five", "x" * 40, "y " * 30]


@pytest.fixture
def folder(tmp_path):
    return tiny_bert.write(tmp_path / "tiny")


@pytest.fixture
def model(folder, tmp_path):
    return lambda **more: OnnxEmbeddings(folder, graph_cache=tmp_path / "graphs", threads=1, **more)


def plain(folder, text, most=tiny_bert.POSITIONS):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    ids = tokenizer.encode(text).ids
    return plain_bert.vector(folder, ids if len(ids) <= most else [*ids[: most - 1], ids[-1]])


def embed(provider, texts):
    # A loop of its own: reading the folder is for code outside of one.
    return anyio.run(provider.embed_texts, texts)


def far(one, other):
    return np.abs(np.array(one) - np.array(other)).max()


def test_the_graph_computes_what_the_plain_formula_does(folder, model):
    vectors = embed(model(batch_size=2), TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert far(vector, plain(folder, text)) < 1e-5


def test_what_tokenizer_json_says_about_cutting_and_padding_is_not_trusted(model):
    """The file says: cut after 4 tokens, pad to 50."""
    provider = model()
    assert anyio.run(provider.count_tokens, ["a", "a b c d e f g"]) == [1, 7]
    short, long = embed(provider, ["a b", "a b c d e f g"])
    assert far(short, long) > 1e-3


def test_a_text_that_is_too_long_is_cut_and_closed(folder, model):
    [vector] = embed(model(), ["a b " * 100])
    expected = plain(folder, "a b " * 100)
    assert far(vector, expected) < 1e-5


def test_weights_with_a_prefix_are_read_too(tmp_path, model):
    other = tiny_bert.write(tmp_path / "prefixed", prefix="bert.")
    vectors = embed(OnnxEmbeddings(other, graph_cache=tmp_path / "g"), TEXTS)
    assert far(vectors, embed(model(), TEXTS)) < 1e-6


def test_the_graph_is_made_once_and_kept(folder, model, tmp_path):
    embed(model(), ["a"])
    [kept] = (tmp_path / "graphs").iterdir()
    before = kept.stat().st_mtime_ns
    embed(model(), ["a"])
    assert [path.stat().st_mtime_ns for path in (tmp_path / "graphs").iterdir()] == [before]


def test_two_at_once_leave_one_whole_graph(folder, model, tmp_path):
    threads = [Thread(target=embed, args=(model(), TEXTS)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list((tmp_path / "graphs").iterdir())) == 1
    assert len(embed(model(), TEXTS)) == len(TEXTS)


def test_a_folder_with_a_graph_needs_no_weights(folder, tmp_path, model):
    expected = embed(model(), TEXTS)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "model.onnx").write_bytes(bert_graph(folder / "model.safetensors", settings))
    (folder / "model.safetensors").unlink()
    made = OnnxEmbeddings(folder, graph_cache=tmp_path / "unused")
    assert far(embed(made, TEXTS), expected) < 1e-6
    assert not (tmp_path / "unused").exists()


def test_the_first_token_is_taken_where_the_folder_says_so(folder, model):
    mean = embed(model(), TEXTS)
    (folder / "1_Pooling").mkdir()
    told = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(told))
    provider = model()
    assert far(embed(provider, TEXTS), mean) > 1e-3


def test_another_model_or_pooling_has_another_name(folder, tmp_path, model):
    same = tiny_bert.write(tmp_path / "elsewhere" / "tiny")
    other = tiny_bert.write(tmp_path / "other" / "tiny", seed=8)
    assert OnnxEmbeddings(same).model_id == model().model_id
    assert OnnxEmbeddings(other).model_id != model().model_id


@pytest.mark.parametrize(
    ("name", "content", "tokens"),
    [
        ("sentence_bert_config.json", {"max_seq_length": 20}, 20),
        ("tokenizer_config.json", {"model_max_length": 30}, 30),
        ("tokenizer_config.json", {"model_max_length": 10**30}, tiny_bert.POSITIONS),
        ("sentence_bert_config.json", {"max_seq_length": None}, tiny_bert.POSITIONS),
    ],
)
def test_the_longest_text_is_the_smallest_of_what_the_files_say(
    folder, model, name, content, tokens
):
    (folder / name).write_text(json.dumps(content))
    assert model().max_tokens == tokens


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_incomplete_folder_is_refused(folder, model, missing):
    (folder / missing).unlink()
    with pytest.raises(EmbeddingModelError, match="not a folder of a sentence model") as caught:
        model()
    assert "config.json, tokenizer.json and model.onnx" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "{"),
        ("config.json", '{"hidden_size": "many"}'),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}'),
    ],
)
def test_a_folder_that_makes_no_sense_is_refused(folder, model, name, content):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    with pytest.raises(EmbeddingModelError):
        model()


@pytest.mark.parametrize(
    ("key", "value"),
    [("model_type", "mpnet"), ("hidden_act", "relu"), ("position_embedding_type", "relative_key")],
)
def test_weights_of_another_kind_are_refused_by_name(tmp_path, key, value):
    folder = tiny_bert.write(tmp_path / "odd", **{key: value})
    with pytest.raises(EmbeddingModelError, match=f"{key} '{value}'") as caught:
        embed(OnnxEmbeddings(folder, graph_cache=tmp_path / "g"), ["a"])
    assert "export the model to ONNX" in caught.value.hint


@pytest.mark.parametrize("name", ["tokenizer.json", "model.onnx"])
def test_a_damaged_file_is_reported(folder, model, name):
    (folder / name).write_bytes(b"not what it should be")
    with pytest.raises(EmbeddingModelError, match="cannot load the model"):
        embed(model(), ["a"])


def test_a_graph_with_another_dimension_than_its_settings_is_reported(folder, model):
    settings = json.loads((folder / "config.json").read_text())
    (folder / "model.onnx").write_bytes(bert_graph(folder / "model.safetensors", settings))
    (folder / "config.json").write_text(json.dumps({**settings, "hidden_size": 17}))
    with pytest.raises(EmbeddingModelError, match="length 16, but its config.json has 17"):
        embed(model(), ["a"])
