"""Documents of every kind are read, and what cannot be read says why."""

import io
import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest
from pypdf import PdfReader, PdfWriter
from tests.samples.make import lighthouse_pdf, pdf

from lexigram.ai.workers.document_ingestion import errors
from lexigram.ai.workers.document_ingestion.blocks import scan
from lexigram.ai.workers.document_ingestion.config import IngestionConfig
from lexigram.ai.workers.document_ingestion.formats import docling, office
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.parser import UniversalDocumentParser
from lexigram.ai.workers.document_ingestion.types import BlockKind, Document
from lexigram.contracts.ai import RAGError
from lexigram.contracts.workflow.errors import StepRefusedError
from lexigram.processes import ProcessPool

SAMPLES = Path(__file__).parents[2] / "samples" / "files"


@pytest.fixture
async def parser() -> AsyncIterator[UniversalDocumentParser]:
    config = IngestionConfig(max_bytes=1_000_000, max_pages=20)
    async with ProcessPool(1) as processes:
        yield UniversalDocumentParser(config=config, processes=processes)


def sealed(data: bytes) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    writer.encrypt("secret", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("lighthouse.pdf", "## Fog\n\nIn fog the light is of no use"),
        ("bread.html", "- 50 g water\n  - lukewarm"),
        ("bicycle.md", "### Cables\n\nA drop of oil"),
        ("honey.docx", "## Tools\n\n- A smoker calms the hive.\n\nMonth: July; Kilograms: 14"),
        ("glacier.pptx", "# Crevasses\n\nCracks open where the slope changes.\n\nRope up"),
        ("harvest.xlsx", "# Apples\n\nvariety: Boskoop; tons: 3.5"),
        ("towns.csv", "town: Siena; country: Italy; founded: 30 BC, by legend"),
        ("ferry.eml", "# Ferry timetable in winter\n\nFrom: harbour@example.org"),
        ("stars.json", "stars.name: Vega\nstars.constellation: Lyra"),
        ("plain.txt", "Moss grows on the north side."),
    ],
)
async def test_a_sample_of_every_kind_is_read(parser, name, wanted):
    document = await parser.parse(SAMPLES / name)
    assert wanted in document.content
    assert document.metadata["file_name"] == name
    covered = [document.content[block.start : block.end] for block in document.blocks]
    assert all(text.strip() == text for text in covered)
    left = "".join(covered)
    assert "".join(left.split()) == "".join(document.content.split())


async def test_html_has_no_script_style_or_navigation_in_it(parser):
    document = await parser.parse(SAMPLES / "bread.html")
    for unwanted in ("script-text", "trackVisitor", "color: tan", "Shop our flour", "Copyright"):
        assert unwanted not in document.content
    assert document.metadata["title"] == "Sourdough bread"


@pytest.mark.parametrize(
    "html",
    [
        "<p>seen</p><script>unseen</script>",
        "<p>seen</p><SCRIPT type='x'>if (a < b) { unseen }</SCRIPT><style>unseen{}</style>",
        "<p>seen</p><script>unseen",
        "<p>seen</p><template><p>unseen</p></template><noscript>unseen</noscript>",
        "<p>seen</p><!-- unseen --><svg><text>unseen</text></svg>",
        "<body><header><a>unseen</a></header><h1>seen</h1></body>",
    ],
)
async def test_invisible_text_of_a_page_is_removed(parser, html):
    document = await parser.parse_bytes(html.encode(), "page.html")
    assert "seen" in document.content.split("unseen")[0]
    assert "unseen" not in document.content


async def test_a_page_nested_beyond_reason_still_gives_its_text(parser):
    html = "<div>" * 5_000 + "deep" + "</div>" * 5_000
    assert (await parser.parse_bytes(html.encode(), "a.html")).content == "deep"


async def test_text_of_other_formats_never_becomes_a_heading_by_accident(parser):
    document = await parser.parse_bytes(b"<p># not one</p><p>```</p>", "a.html")
    assert {block.kind for block in document.blocks} == {BlockKind.TEXT}
    plain = await parser.parse_bytes(b"# a comment\n\ntext", "a.txt")
    assert {block.kind for block in plain.blocks} == {BlockKind.TEXT}


async def test_pages_of_a_pdf_are_known(parser):
    document = await parser.parse(SAMPLES / "lighthouse.pdf")
    assert document.page_at(document.content.index("colza")) == 1
    assert document.page_at(document.content.index("compressor")) == 2
    assert document.metadata["total_pages"] == 2


async def test_a_pdf_read_in_parts_is_the_same_document(parser):
    data = pdf([[(20, f"Chapter {n}"), (11, f"The text of page {n} goes on.")] for n in range(7)])
    seen = []

    async def progress(done, total):
        seen.append((done, total))

    whole = await parser.parse_bytes(data, "a.pdf")
    parts = await parser.parse_bytes(data, "a.pdf", pages_at_once=3, progress=progress)
    assert parts == whole
    assert seen == [(3, 7), (6, 7), (7, 7)]


async def test_pdfs_are_read_at_once_although_pdfium_knows_one_thread(parser):
    data = lighthouse_pdf()
    results = []

    async def read():
        results.append((await parser.parse_bytes(data, "a.pdf")).content)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(read)
    assert len(set(results)) == 1
    assert len(results) == 20


async def test_pages_that_need_ocr_are_named(parser):
    data = pdf([[(11, "Text on the first page.")], [], []], images=[1])
    document = await parser.parse_bytes(data, "a.pdf")
    assert document.metadata["pages_needing_ocr"] == [2]  # the third is just empty


async def test_a_pdf_of_pictures_only_is_refused_and_says_what_helps(parser):
    with pytest.raises(errors.DocumentWithoutTextError, match="1 scanned pages") as caught:
        await parser.parse_bytes(pdf([[]], images=[0]), "scan.pdf")
    assert "docling" in str(caught.value)


BAD = {
    "zero.txt": (b"", errors.DocumentEmptyError),
    "picture.pdf": (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, errors.DocumentTypeMismatchError),
    "report.txt": (lighthouse_pdf(), errors.DocumentTypeMismatchError),
    "cut.pdf": (lighthouse_pdf()[:700], errors.DocumentBrokenError),
    "sealed.pdf": (sealed(lighthouse_pdf()), errors.DocumentEncryptedError),
    "large.txt": (b"x" * 1_000_001, errors.DocumentTooLargeError),
    "long.pdf": (pdf([[(11, "page")]] * 21), errors.TooManyPagesError),
    "latin.csv": (b"name;town\nJos\xe9;C\x81rdoba\n", errors.DocumentCharsetError),
    "program.md": (b"\x7fELF\0\0\0" + b"\0" * 50, errors.DocumentTypeMismatchError),
    "noise.txt": (bytes(range(256)) * 4, errors.DocumentBinaryError),
    "movie.mp4": (b"\0\0\0 ftypisom", errors.UnsupportedDocumentError),
    "broken.json": (b'{"a": ', errors.DocumentBrokenError),
    "deep.json": (b"[" * 100_000, errors.DocumentNestedError),
    "broken.docx": (b"PK\x03\x04 and then nothing", errors.DocumentBrokenError),
    "words.docx": (b"just words", errors.DocumentTypeMismatchError),
    "blank.md": (b" \n\n ", errors.DocumentWithoutTextError),
    "not.eml": (b"just words", errors.DocumentBrokenError),
    "open.csv": (b'a,b\n"never closed', errors.DocumentBrokenError),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_document_has_its_own_reason(parser, tmp_path, name):
    data, kind = BAD[name]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(errors.IngestionInputError) as caught:
        await parser.parse(path)
    assert type(caught.value) is kind
    assert name in str(caught.value) or kind is errors.UnsupportedDocumentError
    # a durable step does not try it again, and callers of the old line catch RAGError
    assert isinstance(caught.value, StepRefusedError)
    assert isinstance(caught.value, RAGError)


async def test_files_outside_of_the_roots_are_not_read(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (root / "link.txt").symlink_to(outside / "secret.txt")
    (root / "inside.txt").write_text("fine")
    (root / "near.txt").symlink_to(root / "inside.txt")
    parser = UniversalDocumentParser(allowed_root=root)
    for path in (root / "link.txt", outside / "secret.txt", root / ".." / "outside/secret.txt"):
        with pytest.raises(errors.DocumentOutsideRootError, match="Access denied"):
            await parser.parse(path)
    assert (await parser.parse(root / "near.txt")).content == "fine"
    with pytest.raises(errors.DocumentOutsideRootError):
        await parser.extract_metadata(root / "link.txt")


async def test_what_is_no_plain_file_or_not_there_is_named(parser, tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "circle.txt").symlink_to(tmp_path / "circle.txt")
    for name in ("pipe.txt", "folder.txt", "circle.txt"):
        with pytest.raises(errors.DocumentUnreadableError):
            await parser.parse(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        await parser.parse(tmp_path / "missing.txt")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_file_without_permission_is_named(parser, tmp_path):
    path = tmp_path / "closed.txt"
    path.write_text("text")
    path.chmod(0)
    with pytest.raises(errors.DocumentUnreadableError, match="Permission denied"):
        await parser.parse(path)


@pytest.mark.parametrize(
    ("data", "mime", "text", "charset"),
    [
        ("é".encode(), None, "é", "utf-8"),
        (b"\xef\xbb\xbf" + "é".encode(), None, "é", "utf-8"),
        (b"\xff\xfe" + "é\r\nb".encode("utf-16-le"), None, "é\nb", "utf-16-le"),
        (b"caf\xe9", None, "café", "cp1252"),
        ("łódź".encode("iso8859-2"), "text/plain; charset=iso-8859-2", "łódź", "iso8859-2"),
        ("é".encode(), "text/plain; charset=iso-8859-2", "é", "utf-8"),
        (b"caf\xe9", "text/plain; charset=nonsense", "café", "cp1252"),
        (b"\x93quoted\x94", "text/plain; charset=latin-1", "“quoted”", "cp1252"),
    ],
)
async def test_charsets_are_tried_in_order(parser, data, mime, text, charset):
    document = await parser.parse_bytes(data, "a.txt", mime_type=mime)
    assert document.content == text
    assert document.metadata["charset"] == charset


async def test_a_declared_charset_of_a_page_is_used(parser):
    html = '<meta http-equiv="content-type" content="text/html; charset=iso-8859-2"><p>łódź</p>'
    document = await parser.parse_bytes(html.encode("iso8859-2"), "a.html")
    assert document.content == "łódź"


async def test_without_a_suffix_the_type_or_the_content_decides(parser):
    assert (await parser.parse_bytes(lighthouse_pdf(), "download")).page_starts
    page = await parser.parse_bytes(b"<!DOCTYPE html><p>hi</p>", "https://x.org/", mime_type=None)
    assert page.content == "hi"
    table = await parser.parse_bytes(b"a,b\n1,2", "export", mime_type="text/csv; charset=utf-8")
    assert table.content == "a: 1; b: 2"


@pytest.mark.parametrize(
    ("name", "data", "wanted"),
    [
        ("notes.adoc", b"= Title\n\ntext", "= Title\n\ntext"),
        ("page.php", b"<!doctype html><p>hi", "hi"),
        ("report.bak", lighthouse_pdf(), "lighthouse"),
        ("main.py", "x = 'é'".encode(), "x = 'é'"),
        ("wide.xyz", "wide".encode("utf-16"), "wide"),
    ],
)
async def test_the_content_of_a_document_with_an_unknown_suffix_decides(parser, name, data, wanted):
    document = await parser.parse_bytes(data, name, mime_type="application/x-unknown")
    assert wanted.lower() in document.content.lower()


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n", b"\xfd\xfc" * 9, b"a\0b", b"\xe9t\xe9"])
async def test_an_unknown_suffix_without_a_readable_content_is_refused(parser, data):
    with pytest.raises(errors.UnsupportedDocumentError):
        await parser.parse_bytes(data, "picture.xyz")


async def test_half_characters_and_zeros_do_not_reach_a_store(parser):
    document = await parser.parse_bytes(rb'{"a": "x\ud800y\u0000z", "b": "end"}', "a.json")
    assert document.content == "a: x\ufffdy\ufffdz\n\nb: end"
    document.content.encode()
    assert [(one.start, one.end) for one in document.blocks] == [(0, len(document.content))]


async def test_an_office_library_that_is_missing_names_its_extra(parser, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "docx", None)
    source = Source(name="honey.docx", suffix=".docx", max_bytes=10**6, max_pages=1)
    with pytest.raises(errors.ParserExtraMissingError) as caught:
        office.parse_docx((SAMPLES / "honey.docx").read_bytes(), source)
    assert "pip install 'lexigram-ai-workers[office]'" in str(caught.value)


class Shouting:
    async def parse(self, path):
        text = await anyio.Path(path).read_text()
        return Document(f"# {path.name}\n\n{text.upper()}", {"loud": True})

    async def extract_metadata(self, path):
        return {}


async def test_a_parser_of_the_application_reads_its_types_and_by_name(parser, tmp_path):
    parser.register("shout", Shouting(), suffixes=["shout"], mime_types=["text/x-shout"])
    assert ".shout" in parser.supported_extensions
    (tmp_path / "a.shout").write_text("hello")
    (tmp_path / "b.txt").write_text("hello")
    document = await parser.parse(tmp_path / "a.shout")
    assert document.content == "# a.shout\n\nHELLO"
    assert document.metadata["loud"]
    assert document.metadata["title"] == "a.shout"
    assert "HELLO" in (await parser.parse(tmp_path / "b.txt", parser="shout")).content
    assert "HELLO" in (await parser.parse_bytes(b"hello", "x", mime_type="text/x-shout")).content
    with pytest.raises(errors.UnknownParserError, match="'whisper'"):
        await parser.parse(tmp_path / "b.txt", parser="whisper")


def docling_server(answers):
    """The wire of docling-serve: one answer per request, and what was asked."""
    asked = []

    async def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.url.path, request.headers.get("x-api-key"), await request.aread()))
        status, body = answers[len(asked) - 1]
        if status == 0:
            raise httpx.ConnectError("refused")
        return httpx.Response(status, json=body)

    return httpx.MockTransport(answer), asked


async def test_a_docling_server_parses_and_its_failures_are_distinguished():
    done = {"status": "success", "document": {"md_content": "# Read\n\nby OCR"}, "errors": []}
    failed = {"status": "failure", "document": {}, "errors": [{"error_message": "no pages"}]}
    transport, asked = docling_server([(200, done), (200, failed), (422, {}), (503, {}), (0, {})])
    server = docling.DoclingParser("http://docling:5001/v1", api_key="k", transport=transport)
    document = await server.parse_bytes(b"scan", "dir/scan.pdf", mime_type="application/pdf")
    assert document.content == "# Read\n\nby OCR"
    assert asked[0][:2] == ("/v1/convert/file", "k")
    for part in (b'filename="scan.pdf"', b"do_ocr", b"true", b"to_formats", b"scan"):
        assert part in asked[0][2]
    with pytest.raises(errors.DocumentBrokenError, match="no pages"):
        await server.parse_bytes(b"x", "a.pdf")
    with pytest.raises(errors.DocumentBrokenError, match="422"):
        await server.parse_bytes(b"x", "a.pdf")
    for _ in range(2):
        with pytest.raises(errors.ParserUnavailableError) as caught:
            await server.parse_bytes(b"x", "a.pdf")
        assert not isinstance(caught.value, StepRefusedError)


async def test_an_answer_that_is_no_document_may_be_tried_again():
    transport, _ = docling_server([(200, {"message": "the gateway is busy"}), (200, [])])
    server = docling.DoclingParser("http://docling:5001", transport=transport)
    for _ in range(2):
        with pytest.raises(errors.ParserUnavailableError, match="responded without a document"):
            await server.parse_bytes(b"data", "a.pdf")


async def test_scanned_pages_go_to_the_docling_server_when_there_is_one():
    done = {"status": "success", "document": {"md_content": "# Read\n\nby OCR"}}
    transport, asked = docling_server([(200, done)] * 3)
    server = docling.DoclingParser("http://docling:5001", transport=transport)
    parser = UniversalDocumentParser(docling=server)
    scan_only = pdf([[]], images=[0])
    assert (await parser.parse_bytes(scan_only, "scan.pdf")).content == "# Read\n\nby OCR"
    assert (await parser.parse(SAMPLES / "lighthouse.pdf")).metadata["total_pages"] == 2
    assert len(asked) == 1  # a PDF with text needs no server
    with pytest.raises(errors.DocumentWithoutTextError):
        await parser.parse_bytes(scan_only, "scan.pdf", ocr=False)
    named = await parser.parse_bytes(b"any", "a.png", parser="docling")
    assert named.metadata["parser"] == "docling"
    assert await parser.validate(b"any", "a.png", parser="docling") == "docling"


async def test_docling_without_a_server_names_the_setting(parser):
    with pytest.raises(errors.UnknownParserError, match="docling_url"):
        await parser.parse_bytes(b"x", "a.pdf", parser="docling")


def test_headings_and_code_are_found():
    text = (
        "Title\n=====\n\ntext\n\n## A `b` ##\n\n- item\n  ```sh\n  # no\n  ```\n\n"
        "~~~\n```\n~~~\n\nlist\n- x\n---\n\n``` stray\n\n#hash\n"
    )
    found = [(b.kind.value, b.level, text[b.start : b.end]) for b in scan(text)]
    assert found == [
        ("heading", 1, "Title\n====="),
        ("text", 0, "text"),
        ("heading", 2, "## A `b` ##"),
        ("text", 0, "- item"),
        ("code", 0, "  ```sh\n  # no\n  ```"),
        ("code", 0, "~~~\n```\n~~~"),
        ("text", 0, "list\n- x\n---"),
        ("text", 0, "``` stray"),
        ("text", 0, "#hash"),
    ]
    assert [b.title for b in scan(text) if b.title] == ["Title", "A `b`"]
