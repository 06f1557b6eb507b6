"""Chunks have exact ranges, stay under their heading and never cut code."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.samples.make import BICYCLE

from lexigram.ai.workers.document_ingestion.chunker import (
    _TOKEN,
    DocumentChunker,
    NearDuplicates,
    chunking_config,
)
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig
from lexigram.ai.workers.document_ingestion.errors import ChunkingConfigError
from lexigram.ai.workers.document_ingestion.types import Document
from lexigram.contracts.ai import ChunkerProtocol, ChunkProtocol

PARTS = st.sampled_from(
    [
        "# One\n\n",
        "## Two\n\n",
        "### Three #\n",
        "Setext\n------\n\n",
        "Some words in a sentence. And another one!\n",
        "word " * 30 + "\n\n",
        "averyveryverylongwordwithoutanyspace" * 3 + "\n\n",
        "```py\n# code\n\nx = 1\n```\n\n",
        "~~~\n```\n# no heading\n~~~\n\n",
        "- item\n- item\n\n",
        "日本語の文章です。もう一つ。\n\n",
        "😀👩‍👩‍👧 é\n",
        "\n\n \t\n",
        "```\nnever closed\n",
        "\r\x0b\u2028x",
    ]
)
TEXTS = st.lists(PARTS, max_size=25).map("".join) | st.text(max_size=300)
CONFIGS = st.builds(
    lambda size, share, separator, unit: ChunkingConfig(
        chunk_size=size,
        chunk_overlap=min(size - 1, size * share // 4),
        separator=separator,
        unit=unit,
        near_duplicates="off",
    ),
    size=st.integers(1, 120),
    share=st.integers(0, 3),
    separator=st.sampled_from([None, "\n\n", "\n", ". "]),
    unit=st.sampled_from(["tokens", "characters"]),
)


def code_ranges(text):
    """By another parser than ours: closed fences, as ranges of characters."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for token in MarkdownIt().parse(text):
        if token.type == "fence" and token.level == 0:
            first, after = token.map
            if lines[after - 1].strip().startswith(token.markup[:3]) and after - 1 > first:
                yield starts[first], starts[after] - 1


@given(TEXTS, CONFIGS)
def test_every_chunk_is_exactly_its_range(text, config):
    chunks = DocumentChunker(config).chunk(text)
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    # nothing but whitespace is lost, and the order is that of the text
    position = 0
    for chunk in chunks:
        assert chunk.text.strip()
        assert not text[position : chunk.start].strip()
        assert position <= chunk.end
        position = max(position, chunk.end)
    assert not text[position:].strip()


@given(TEXTS.filter(lambda text: "\r" not in text), CONFIGS)
def test_no_chunk_starts_or_ends_inside_code(text, config):
    ranges = list(code_ranges(text))
    for chunk in DocumentChunker(config).chunk(text):
        for start, end in ranges:
            assert not start < chunk.start < end
            assert not start < chunk.end < end


@given(TEXTS, CONFIGS.filter(lambda config: config.chunk_size >= 8))
def test_only_code_is_longer_than_the_size(text, config):
    if "```" in text or "~~~" in text:
        return
    for chunk in DocumentChunker(config).chunk(text):
        is_characters = config.unit == "characters"
        size = len(chunk.text) if is_characters else len(_TOKEN.findall(chunk.text))
        assert size <= config.chunk_size


@given(TEXTS, CONFIGS)
def test_cutting_again_gives_the_same(text, config):
    assert DocumentChunker(config).chunk(text) == DocumentChunker(config).chunk(text)


def test_chunks_know_their_headings():
    text = BICYCLE.split("---\n")[-1]
    chunks = DocumentChunker().chunk(text, {"source": "x"})
    assert [chunk.heading_path for chunk in chunks] == [
        ("Repair a bicycle",),
        ("Repair a bicycle", "Flat tyre"),
        ("Repair a bicycle", "Brakes"),
        ("Repair a bicycle", "Brakes", "Cables"),
    ]
    assert chunks[0].metadata == {"source": "x"}
    assert isinstance(chunks[0], ChunkProtocol)
    assert isinstance(DocumentChunker(), ChunkerProtocol)


def test_headings_without_text_go_with_what_is_below_them():
    chunks = DocumentChunker().chunk("# A\n\n## B\n\ntext\n\n## C\n\n## D\n\nmore")
    assert [(c.heading_path, c.text) for c in chunks] == [
        (("A", "B"), "# A\n\n## B\n\ntext"),
        (("A", "C"), "## C"),
        (("A", "D"), "## D\n\nmore"),
    ]


def test_code_longer_than_a_chunk_stays_whole():
    code = "```\n" + "line of code\n" * 50 + "```"
    text = f"before\n\n{code}\n\nafter " + "word " * 40
    config = ChunkingConfig(chunk_size=100, chunk_overlap=10, unit="characters")
    chunks = DocumentChunker(config).chunk(text)
    assert sum(code in chunk.text for chunk in chunks) == 1


def test_the_overlap_repeats_whole_words_of_the_chunk_before():
    text = " ".join(f"word{number}" for number in range(60))
    config = ChunkingConfig(chunk_size=100, chunk_overlap=20, unit="characters")
    chunks = DocumentChunker(config).chunk(text)
    for before, after in itertools.pairwise(chunks):
        repeated = text[after.start : before.end]
        assert repeated.startswith("word")
        assert 0 < len(repeated) <= 20
        assert len(after.text) <= 100


def test_the_separator_is_where_it_cuts():
    text = "aaaa bbbb|cccc dddd|eeee ffff"
    config = ChunkingConfig(chunk_size=12, chunk_overlap=0, separator="|", unit="characters")
    assert [c.text for c in DocumentChunker(config).chunk(text)] == [
        "aaaa bbbb|",
        "cccc dddd|",
        "eeee ffff",
    ]


def test_a_tokenizer_file_counts_as_its_model_does(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.enable_truncation(4)  # must not count
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = ChunkingConfig(
        chunk_size=10, chunk_overlap=0, tokenizer=str(tmp_path / "tokenizer.json")
    )
    chunks = DocumentChunker(config).chunk(" ".join(["extraordinarily"] * 95))
    assert max(len(chunk.text.split()) for chunk in chunks) == 10
    assert len(chunks) in range(10, 13)
    with pytest.raises(ChunkingConfigError, match="cannot read"):
        DocumentChunker(ChunkingConfig(tokenizer=str(tmp_path / "none.json"))).chunk("text")


def test_pages_come_from_the_document():
    document = Document("one\n\ntwo\n\nthree", {}, None, [0, 5, 10])
    config = ChunkingConfig(chunk_size=4, chunk_overlap=0, unit="characters", separator="\n\n")
    chunks = DocumentChunker(config).chunk_document(document)
    assert next(chunk.page for chunk in chunks if "t" in chunk.text) == 2
    assert chunks[-1].page == 3


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"chunk_sizes": 5}, "chunk_sizes: unknown key"),
        ({"chunk_size": "5"}, "chunk_size"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"chunk_size": 5, "chunk_overlap": 5}, "less than chunk_size"),
        ({"unit": "bytes"}, "unit"),
        ({"separator": ""}, "separator is empty"),
    ],
)
def test_wrong_settings_are_refused_by_name(given, text):
    with pytest.raises(ChunkingConfigError, match=text):
        chunking_config(given, ChunkingConfig())


def test_settings_lie_over_the_default():
    default = ChunkingConfig(chunk_size=100, chunk_overlap=7)
    assert chunking_config(None, default) is default
    made = chunking_config({"chunk_size": 50}, default)
    assert (made.chunk_size, made.chunk_overlap) == (50, 7)


STORY = (
    "The keeper climbs the stairs every evening at sunset, lights the lamp, winds the clockwork of"
    " the lens, writes the time and the weather into the book, trims the wick, looks for ships"
    " until midnight, wakes the second keeper, and goes to bed with the sound of the sea."
)


def test_nearly_equal_chunks_are_linked_or_left_out():
    other = "Bread needs flour, water, salt and time; the oven must be hot before it goes in."
    text = f"# A\n\n{STORY}\n\n# B\n\n{other}\n\n# A\n\n{STORY.replace('midnight', 'one')}"
    marked = DocumentChunker(ChunkingConfig(duplicate_threshold=0.7)).chunk(text)
    assert [chunk.duplicate_of for chunk in marked] == [None, None, 0]
    kept = DocumentChunker(ChunkingConfig(duplicate_threshold=0.7, near_duplicates="skip")).chunk(
        text + f"\n\n# C\n\n{other} {STORY[:40]}"
    )
    assert [chunk.heading_path for chunk in kept] == [("A",), ("B",), ("C",)]
    assert [chunk.index for chunk in kept] == [0, 1, 2]
    off = DocumentChunker(ChunkingConfig(near_duplicates="off")).chunk(text)
    assert [chunk.duplicate_of for chunk in off] == [None, None, None]


def test_equal_texts_are_found_whatever_their_length():
    known = NearDuplicates(0.9)
    texts = ["yes", "no", "Yes!", STORY, STORY, "\ud800", "\ud800"]
    assert [known.add(text) for text in texts] == [None, None, 0, None, 3, None, 5]


@pytest.mark.parametrize(
    "text",
    [
        "# " + " " * 200_000 + "x",
        "# x" + " " * 200_000 + "#\n",
        "```a\n" * 40_000,
        "> " * 100_000,
        "- " * 50_000 + "```",
        "=\n" * 50_000,
        "```\nx\n```\n\nword word word word word word\n\n" * 3_000,
        "\n" * 300_000 + "x",
    ],
)
def test_no_text_takes_for_ever(text):
    config = ChunkingConfig(chunk_size=20, chunk_overlap=5, near_duplicates="off")
    for chunk in DocumentChunker(config).chunk(text):
        assert text[chunk.start : chunk.end] == chunk.text
