"""Documents that take too much: each is refused with its limit, and the others are read."""

import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from attrs import evolve
from tests.e2e.ai.conftest import HASHING, ended
from tests.e2e.processes import work
from tests.e2e.processes.test_pool import is_running, number_in, until

from lexigram.ai.workers.document_ingestion import errors
from lexigram.ai.workers.document_ingestion.chunker import DocumentChunker
from lexigram.ai.workers.document_ingestion.config import IngestionConfig
from lexigram.ai.workers.document_ingestion.isolation import LARGE_TEXT, Isolation
from lexigram.ai.workers.document_ingestion.parser import UniversalDocumentParser
from lexigram.ai.workers.document_ingestion.stages import chunk_document_text
from lexigram.ai.workers.document_ingestion.types import Document
from lexigram.cli import ExitCode
from lexigram.processes import ProcessPool

pytestmark = [pytest.mark.anyio, pytest.mark.promise]

LIMITS = IngestionConfig(process_memory=64 * 1024 * 1024)
# Every list in it takes thirty times as much as its two signs.
HUNGRY = b"[" + b"[]," * 3_000_000 + b"1]"
LONG = "The harbour falls dry twice a day, and the boats lie on the mud. " * 40_000


@pytest.fixture
async def pool():
    async with ProcessPool(2) as made:
        yield made


async def test_a_document_beyond_the_memory_is_refused_and_others_are_read(pool):
    parser = UniversalDocumentParser(config=LIMITS, processes=pool)
    with pytest.raises(errors.DocumentMemoryError) as raised:
        await parser.parse_bytes(HUNGRY, "hungry.json")
    assert raised.value.details["process_memory"] == LIMITS.process_memory
    assert "hungry.json could not be processed within 67,108,864 bytes" in str(raised.value)
    assert (await parser.parse_bytes(b'{"a": 1}', "small.json")).content == "a: 1"
    large = (b"<p>words of a page</p>" * 20_000, "large.html")
    assert (await parser.parse_bytes(*large)).content.startswith("words of a page")


async def test_a_document_beyond_the_time_is_refused_and_others_are_read(pool):
    parser = UniversalDocumentParser(config=evolve(LIMITS, process_timeout=0.2), processes=pool)
    with pytest.raises(errors.DocumentTimeoutError, match="within 0.2 s"):
        await parser.parse_bytes(b"<p>x" * 2_000_000, "slow.html")
    assert (await parser.parse_bytes(b"<p>quick", "quick.html")).content == "quick"


async def test_a_crash_of_the_parser_may_be_tried_again(pool):
    isolation = Isolation(LIMITS, pool)
    with pytest.raises(errors.ParserCrashedError) as raised:
        await isolation.run("broken.pdf", work.crash)
    assert not isinstance(raised.value, errors.IngestionInputError)
    assert raised.value.details["document"] == "broken.pdf"
    assert await isolation.run("good.pdf", work.echo, 1) == 1


async def test_without_a_pool_the_process_ends_with_its_call():
    isolation = Isolation(LIMITS)
    number = await isolation.run("a.pdf", work.pid)
    assert not is_running(number)


async def test_a_cancelled_caller_leaves_no_process(pool, tmp_path):
    isolation = Isolation(LIMITS, pool)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(isolation.run, "endless.pdf", work.spin, str(tmp_path / "pid"))
        number = await number_in(tmp_path / "pid")
        tasks.cancel_scope.cancel()
    assert not is_running(number)


async def test_a_large_text_is_cut_elsewhere_into_the_same_chunks(pool):
    assert len(LONG) > LARGE_TEXT
    text = f"# Tides\n\n{LONG}\n\n## Code\n\n```\nx = 1\n```\n"
    document = Document(text, {"title": "Tides"}, None, [0, 100_000])
    chunker = DocumentChunker()
    found = await chunk_document_text(
        document, chunker, Isolation(IngestionConfig(), pool), "tides.md"
    )
    assert found == chunker.chunk_document(document)
    assert {chunk.page for chunk in found} == {1, 2}


PROGRAM = """
import sys
from pathlib import Path
from lexigram.ai.workers.document_ingestion.chunker import DocumentChunker
from lexigram.ai.workers.document_ingestion.types import Document
from lexigram.processes.child import _peak
chunks = DocumentChunker().chunk_document(Document(Path(sys.argv[1]).read_text()))
print(len(chunks), _peak())
"""


def test_the_memory_to_cut_a_text_is_a_few_times_its_length(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text((LONG + "\n\n") * 4)
    size = path.stat().st_size
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True
    )
    count, memory = map(int, done.stdout.split())
    assert count > 1_000
    python = 40 * 1024 * 1024  # with its libraries
    assert memory < 5 * size + python


async def test_an_ingestion_of_a_large_file_ends_when_it_is_asked_to(start, tmp_path):
    (tmp_path / "large.html").write_text("<p>some words of a long page</p>\n" * 1_500_000)
    process = start("ingest", "large.html", "--json", env=HASHING)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    numbers = await until(lambda: children.read_text().split())
    process.send_signal(signal.SIGINT)
    said = await ended(process)
    assert said.code == ExitCode.INTERRUPTED, said.err
    assert not any(map(is_running, numbers))
