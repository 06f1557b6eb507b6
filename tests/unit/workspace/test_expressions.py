"""What reads text of others takes time by its length, not by the square of it."""

import time
from collections.abc import Callable

import pytest

from lexigram.ai.workers.document_ingestion.blocks import escaped, scan
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.formats.text import parse_markdown
from lexigram.ai.workers.embeddings import openai
from lexigram.config import redact_text
from lexigram.observability.w3c import read_context
from lexigram.queue.topics import matcher
from lexigram.sql.placeholders import numbered
from lexigram.workflow.nodes.templates import rendered

TIMES_LONGER = 8
# Eight times the text is eight times the work; by the square it would be sixty-four times.
MOST_TIMES_THE_WORK = 26


def markdown(text: str) -> object:
    return parse_markdown(text.encode(), Source(name="a.md", max_bytes=10**7, max_pages=1))


def match_topic(text: str) -> object:
    return matcher("*a*a*a*a*b")(text)


def read_trace(text: str) -> object:
    return read_context({"traceparent": text})


READERS: list[tuple[Callable[[str], object], str, str, str]] = [
    *[
        (redact_text, "", piece, "")
        for piece in (
            "x",
            "9",
            "A",
            " ",
            "a.",
            "_-",
            "a://",
            "a://b:",
            "a://b@",
            "= ",
            "token= ",
            'password="',
            "password='\\",
            "bearer ",
            '"',
        )
    ],
    (numbered.__wrapped__, "select ", "/* ", ""),
    (numbered.__wrapped__, "select ", "'", ""),
    (numbered.__wrapped__, "select '", "a ? ", ""),
    (markdown, "---\ntitle: a", " ", "b\n---\n"),
    (markdown, "---\n", "title:\n", "x"),
    (scan, "", "```a\n", ""),
    (scan, "", "> ", ""),
    (scan, "", "=", "x"),
    (scan, "", "\n ", ""),
    (escaped, "", "#", ""),
    (escaped, "", "= ", "x"),
    (openai._duration, "", "1", ""),
    (openai._duration, "", "1.", ""),
    (match_topic, "", "a", ""),
    (read_trace, "00-", "0", "-"),
    (lambda text: rendered(text, {}), "", "{a", ""),
    (lambda text: rendered(text, {}), "", "{", ""),
]


@pytest.mark.parametrize(
    ("read", "before", "piece", "after"),
    READERS,
    ids=[f"{getattr(r[0], '__name__', 'render')}-{r[2]!r}" for r in READERS],
)
def test_the_time_to_read_a_text_grows_with_its_length(
    read: Callable[[str], object], before: str, piece: str, after: str
) -> None:
    def work(length: int) -> int:
        text = before + piece * (length // len(piece)) + after
        return min(_time(read, text) for _ in range(5))

    short = work(6_000)
    long = work(6_000 * TIMES_LONGER)

    assert long <= MOST_TIMES_THE_WORK * max(short, 20_000)  # below 20 µs the clock decides


def _time(read: Callable[[str], object], text: str) -> int:
    began = time.thread_time_ns()
    read(text)
    return time.thread_time_ns() - began
