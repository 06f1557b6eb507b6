"""Any bytes under any name: a document or one of our errors, in time that follows their length."""

import os
import random
import time
from pathlib import Path

import pytest

from lexigram.ai.workers.cli.search import excerpt, highlight
from lexigram.ai.workers.document_ingestion.chunker import DocumentChunker
from lexigram.ai.workers.document_ingestion.config import IngestionConfig
from lexigram.ai.workers.document_ingestion.errors import (
    IngestionInputError,
    ParserCrashedError,
)
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.isolation import parse_function
from lexigram.ai.workers.document_ingestion.parser import FORMATS, UniversalDocumentParser
from lexigram.ai.workers.document_ingestion.sniffing import sniff
from lexigram.ai.workers.document_ingestion.types import Document
from lexigram.processes import ProcessPool

pytestmark = pytest.mark.chaos

# `make chaos` runs the full counts, every other run short ones with the same inputs each time.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
COUNT = 10_000 if FULL else 40
SEED = int(os.environ.get("LEX_CHAOS_SEED", "14"))
LENGTH = 10_000
SECONDS = 0.1  # of processor time for so many bytes
LIMITS = IngestionConfig(process_timeout=60, process_memory=512 * 1024 * 1024)
SAMPLES = Path(__file__).parents[2] / "samples" / "files"
TEXTS = [one for one in FORMATS if one.content == "text"]
PACKED = [one for one in FORMATS if one.content != "text"]
WORDS = {
    "html": """<div <p <b </b <table <tr <td </table <ul <li <a&nbsp;href= <svg <title </title <script
        <!-- --> < > </ /> = " ' & &#x &#0; <![CDATA[ ]]> <?php hidden role=main <h1 <pre ``` <font
        <rt <select <option <template <br> <img&nbsp;alt= </p> </div> </ul> </xmp <xmp> <q> <a/>""",
    "markdown": r"# ## ``` ~~~ ```` > - * 1. --- === | [ ]( ) ** _ <!-- \ --- title: ...",
    "csv": """, ; " "" \t | ' = @ a,b 1 \x00""",
    "json": r"""{ } [ ] , : " "" {"a": [1, -0 1e999 NaN null true \ud800 "\u 99999999999999999999 /*
        {"a":[1,[2,{}]]}, [[[]]], {"a":{"b":{"c":"d"}}}, "x",""",
    "mail": r"""From:&nbsp;a Subject: Content-Type:&nbsp;multipart/mixed; boundary=b --b --b-- ; ( )
        charset= punycode utf-7 Content-Transfer-Encoding: base64 quoted-printable =?utf-8?q?a?= < >
        =?x?b?y?= message/rfc822 "a" filename*0*=utf-8''%41 Date: \\ , @""",
    "text": r"a \x00 \xff \xef\xbb\xbf é \ud83d",
}
PIECES = {name: words.split() for name, words in WORDS.items()}
NUMBERS = ("9" * 5_000, "1" * 20, "-", ".5e")


def noise(chance, name):
    """Bytes, up to 10 kB: a part of a format again and again, many of them, a broken sample."""
    pieces = PIECES.get(name, PIECES["text"])
    how = chance.randrange(5)
    if how == 0:
        data = chance.randbytes(chance.randrange(LENGTH))
    elif how == 1:
        samples = sorted(SAMPLES.iterdir())
        data = bytearray(chance.choice(samples).read_bytes()[:LENGTH])
        for _ in range(chance.randrange(1, 30)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    else:
        chosen = [chance.choice(pieces) for _ in range(chance.randrange(1, 6))]
        if how == 2:
            text = "".join(chosen) * (LENGTH // max(1, sum(map(len, chosen))))
        else:
            ends = chance.choice(["", " ", "\n", ">", "\n\n", ">x", ","])
            text = ends.join(chance.choices([*pieces, *NUMBERS[: chance.randrange(5)]], k=500))
        if name == "json":
            text = text.rstrip(",") + "]"
        data = text.replace("&nbsp;", " ").encode("utf-8", "surrogatepass")
        if chance.random() < 0.5:
            data = chance.choice([b"From: a\n", b"<html>", b"---\n", b"[", b"\xff"]) + data
    return bytes(data[:LENGTH])


def read(work, data):
    """What comes of it, and processor time; the quickest of three where one is slow."""
    answer, least = None, float("inf")
    for _ in range(3):
        began = time.thread_time()
        try:
            answer = work(data)
        except IngestionInputError as error:
            answer = error
        least = min(least, time.thread_time() - began)
        if least <= SECONDS:
            break
    return answer, least


@pytest.mark.parametrize("known", TEXTS, ids=lambda known: known.name)
def test_any_text_is_read_or_refused_in_time(known):
    chance = random.Random(SEED)
    parse = parse_function(known.function_path)
    chunker = DocumentChunker()
    for number in range(COUNT):
        suffix = chance.choice(known.suffixes)
        source = Source(name="x", suffix=suffix, max_bytes=10**6, max_pages=10)
        data = noise(chance, known.name)

        def work(data, source=source):
            document = parse(data, source)
            chunker.chunk_document(document)
            return document

        answer, seconds = read(work, data)
        assert isinstance(answer, Document | IngestionInputError)
        assert seconds <= SECONDS, f"input {number} of seed {SEED}: {data[:100]!r}"


def test_any_content_is_recognised_in_time():
    chance = random.Random(SEED)
    for number in range(COUNT):
        data = noise(chance, chance.choice(sorted(PIECES)))
        kind, seconds = read(sniff, data)
        assert isinstance(kind, str)
        assert seconds <= SECONDS, f"input {number} of seed {SEED}: {data[:100]!r}"


@pytest.mark.parametrize("passage", ["a " * 5_000, "A" * LENGTH, "a\n" * 5_000, "ab " * 3_000])
def test_any_passage_is_shown_in_time(passage):
    def show(text):
        return highlight(excerpt(text, ["a", "ab"], 360), ["a", "ab"])

    shown, seconds = read(show, passage)
    assert 0 < len(shown) < 400
    assert seconds <= SECONDS


@pytest.mark.parametrize("known", PACKED, ids=lambda known: known.name)
async def test_any_packed_document_is_read_or_refused(known):
    chance = random.Random(SEED)
    [sample] = SAMPLES.glob(f"*{known.suffixes[0]}")
    whole = sample.read_bytes()
    async with ProcessPool() as pool:
        parser = UniversalDocumentParser(config=LIMITS, processes=pool)
        for _ in range(COUNT):
            data = bytearray(whole)
            for _ in range(chance.randrange(1, 60)):
                place = chance.randrange(len(data))
                data[place] = chance.randrange(256)
                if chance.random() < 0.2:
                    del data[place : place + chance.randrange(len(data) // 20 + 1)]
            try:
                answer = await parser.parse_bytes(bytes(data), f"x{known.suffixes[0]}")
            except (IngestionInputError, ParserCrashedError) as error:
                answer = error
            assert isinstance(answer, Document | IngestionInputError | ParserCrashedError)
