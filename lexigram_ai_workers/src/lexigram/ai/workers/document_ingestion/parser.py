"""Read documents of any kind: find the parser, refuse what cannot be read, say why."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

import anyio.to_thread
from attrs import evolve, field, frozen

from lexigram.ai.workers.document_ingestion.blocks import scan, title_of
from lexigram.ai.workers.document_ingestion.config import IngestionConfig
from lexigram.ai.workers.document_ingestion.errors import (
    DocumentBinaryError,
    DocumentBrokenError,
    DocumentEmptyError,
    DocumentEncryptedError,
    DocumentMissingError,
    DocumentOutsideRootError,
    DocumentTooLargeError,
    DocumentTypeMismatchError,
    DocumentUnreadableError,
    DocumentWithoutTextError,
    IngestionInputError,
    UnknownParserError,
    UnsupportedDocumentError,
)
from lexigram.ai.workers.document_ingestion.formats.source import ParseFunction, Source
from lexigram.ai.workers.document_ingestion.sniffing import looks_like_html, sniff
from lexigram.ai.workers.document_ingestion.types import Document

DOCLING = "docling"
_FORMATS = "lexigram.ai.workers.document_ingestion.formats"
_HALF = re.compile("[\ud800-\udfff]")
Progress = Callable[[int, int], Any]


@runtime_checkable
class DocumentLoader(Protocol):
    """Gets documents from somewhere."""

    async def load(self, source: Any) -> Any:
        """The documents of the source."""
        ...


@runtime_checkable
class DocumentParser(Protocol):
    """Reads files of some kind; register yours with ``UniversalDocumentParser.register``."""

    async def parse(self, path: Path) -> Document:
        """The text and what is known about it. Raises IngestionInputError for a bad file.

        Parsing again gives the same.
        """
        ...

    async def extract_metadata(self, path: Path) -> dict[str, Any]:
        """What is known without reading the text."""
        ...


class ContentParser(Protocol):
    """Reads bytes of any kind, such as a server does."""

    async def parse_bytes(
        self, data: bytes, name: str, *, mime_type: str | None = None, ocr: bool = True
    ) -> Document:
        """The document. Raises IngestionInputError for bad bytes, else it may be tried again."""
        ...


@frozen(kw_only=True)
class Format:
    """One kind of document that is read here."""

    name: str
    suffixes: tuple[str, ...]
    mime_types: tuple[str, ...]
    # what ``sniff`` must say
    content: str
    # module below ``formats`` and function: imported when the first such document comes, as
    # libraries of formats are heavy
    where: str

    def parse(self, data: bytes, source: Source) -> Document:
        """The document in the bytes; computes, so not on the event loop."""
        module, _, function = self.where.partition(":")
        read: ParseFunction = getattr(import_module(f"{_FORMATS}.{module}"), function)
        return read(data, source)


@frozen
class UserParser:
    """A parser of the application."""

    name: str
    parser: DocumentParser
    suffixes: tuple[str, ...] = ()
    mime_types: tuple[str, ...] = ()


@frozen
class ParserRegistry:
    """Which parser reads what; those of the application go before ours."""

    _user: dict[str, UserParser] = field(factory=dict[str, UserParser], init=False)

    def register(
        self,
        name: str,
        parser: DocumentParser,
        *,
        suffixes: Sequence[str] = (),
        mime_types: Sequence[str] = (),
    ) -> None:
        """Let it read documents of these types, and those that ask for it by name.

        A second one of the same name replaces the first.
        """
        endings = tuple(_dotted(suffix) for suffix in suffixes)
        self._user[name] = UserParser(
            name, parser, endings, tuple(mime.lower() for mime in mime_types)
        )

    def named(self, name: str) -> UserParser | Format:
        """The parser of that name. Raises UnknownParserError."""
        found = self._user.get(name) or _BY_NAME.get(name)
        if found is None:
            raise UnknownParserError(name, [*self._user, *_BY_NAME])
        return found

    def find(self, suffix: str, mime_type: str | None) -> UserParser | Format | None:
        """By the suffix, else by the MIME type; of several the one registered last."""
        everything: tuple[UserParser | Format, ...] = (*reversed(self._user.values()), *FORMATS)
        mime = (mime_type or "").partition(";")[0].strip().lower()
        for known in everything:
            if suffix in known.suffixes:
                return known
        for known in everything:
            if mime in known.mime_types:
                return known
        return None

    def mime_type_of(self, name: str) -> str:
        """The type that goes with the suffix of a name; "" when it is not known.

        Not ``mimetypes``: its answers depend on files of the machine.
        """
        found = self.find(_suffix(name), None)
        return found.mime_types[0] if found is not None and found.mime_types else ""

    @property
    def suffixes(self) -> list[str]:
        """All that are known, sorted."""
        mine = {suffix for known in self._user.values() for suffix in known.suffixes}
        return sorted(mine | {suffix for known in FORMATS for suffix in known.suffixes})


class UniversalDocumentParser:
    """Reads pdf, html, Markdown, text, csv, json and mail; Office files with the extra.

    ``allowed_root`` (one folder or several) restricts which files are read, links followed;
    the roots of the configuration count when it is not given. Implements DocumentParser.
    """

    def __init__(
        self,
        allowed_root: Path | Sequence[Path] | None = None,
        *,
        config: IngestionConfig | None = None,
        registry: ParserRegistry | None = None,
        docling: ContentParser | None = None,
    ) -> None:
        self.config = config or IngestionConfig()
        self.registry = registry or ParserRegistry()
        self._docling = docling
        roots = [allowed_root] if isinstance(allowed_root, str | Path) else allowed_root
        self.allowed_roots = tuple(
            Path(root) for root in (self.config.allowed_roots if roots is None else roots)
        )

    @property
    def supported_extensions(self) -> list[str]:
        """The suffixes that are known, sorted."""
        return self.registry.suffixes

    def register(
        self,
        name: str,
        parser: DocumentParser,
        *,
        suffixes: Sequence[str] = (),
        mime_types: Sequence[str] = (),
    ) -> None:
        """Let a parser of yours read documents of these types."""
        self.registry.register(name, parser, suffixes=suffixes, mime_types=mime_types)

    def check_parser(self, name: str) -> None:
        """Raise UnknownParserError unless there is a parser of that name."""
        if name != DOCLING:
            self.registry.named(name)
        else:
            self._docling_server()

    async def parse(self, path: Path | str, parser: str | None = None) -> Document:
        """The document in a file. Raises the IngestionInputError that says what is wrong."""
        data = await self.read(path)
        document = await self.parse_bytes(data, str(path), parser=parser)
        return evolve(
            document, metadata={**_file_facts(Path(path), len(data)), **document.metadata}
        )

    async def extract_metadata(self, path: Path | str) -> dict[str, Any]:
        """What the file system knows about a file that may be read."""
        found = await anyio.to_thread.run_sync(self._checked, Path(path))
        modified = datetime.fromtimestamp(found.st_mtime, UTC).isoformat()
        return {**_file_facts(Path(path), found.st_size), "file_modified": modified}

    async def read(self, path: Path | str) -> bytes:
        """The bytes of a file that may be read, not more than allowed."""
        return await anyio.to_thread.run_sync(self._read, Path(path))

    async def validate(
        self, data: bytes, name: str, *, mime_type: str | None = None, parser: str | None = None
    ) -> str:
        """The name of the parser that will read it. Raises what can be seen without reading."""
        if parser == DOCLING:
            self.check_parser(parser)
            return DOCLING
        chosen = await anyio.to_thread.run_sync(self._chosen, data, name, mime_type, parser)
        if isinstance(chosen, Format) and chosen.name == "pdf":
            from lexigram.ai.workers.document_ingestion.formats.pdf import count_pages

            # opens it: whether it is whole and needs no password
            await anyio.to_thread.run_sync(count_pages, data, self._source(name, mime_type))
        return chosen.name

    async def parse_bytes(
        self,
        data: bytes,
        name: str,
        *,
        mime_type: str | None = None,
        parser: str | None = None,
        ocr: bool = True,
        pages_at_once: int | None = None,
        progress: Progress | None = None,
    ) -> Document:
        """The document in the bytes; ``name`` is its path or URI.

        With a Docling server in the configuration, ``ocr`` lets it read what has scanned pages,
        and the parser ``docling`` any document. ``pages_at_once`` divides a long PDF; the
        result is the same.
        """
        if parser == DOCLING:
            document = await self._by_docling(data, name, mime_type, ocr=ocr)
        else:
            chosen = await anyio.to_thread.run_sync(self._chosen, data, name, mime_type, parser)
            source = self._source(name, mime_type)
            if isinstance(chosen, UserParser):
                document = await _by_user(chosen, data, source)
            elif chosen.name == "pdf" and pages_at_once is not None:
                document = await _in_parts(data, source, pages_at_once, progress)
            else:
                document = await anyio.to_thread.run_sync(chosen.parse, data, source)
            scanned = document.metadata.get("pages_needing_ocr")
            if scanned and ocr and (self._docling or self.config.docling_url):
                document = await self._by_docling(data, name, mime_type, ocr=True)
        if not document.content.strip():
            raise DocumentWithoutTextError(name, document.metadata.get("pages_needing_ocr", ()))
        return _storable(document)

    # --- what may be read ----------------------------------------------------------------------

    def _checked(self, path: Path) -> os.stat_result:
        """Raise unless it is a plain file inside the roots; what the system says about it."""
        try:
            target = path.resolve(strict=True)
            found = target.stat()
        except FileNotFoundError as error:
            raise DocumentMissingError(str(path)) from error
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            raise DocumentUnreadableError(str(path), _reason(error)) from error
        roots = [root.resolve() for root in self.allowed_roots]
        if roots and not any(target.is_relative_to(root) for root in roots):
            shown = [str(root) for root in self.allowed_roots]
            raise DocumentOutsideRootError(str(path), str(target), shown)
        if not stat.S_ISREG(found.st_mode):
            raise DocumentUnreadableError(str(path), "it is no plain file")
        if found.st_size > self.config.max_bytes:
            raise DocumentTooLargeError(str(path), found.st_size, self.config.max_bytes)
        return found

    def _read(self, path: Path) -> bytes:
        self._checked(path)
        try:
            # The path that was checked: a link put in its place since then is not followed.
            descriptor = os.open(path.resolve(strict=True), os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as file:
                return file.read(self.config.max_bytes + 1)
        except OSError as error:
            raise DocumentUnreadableError(str(path), _reason(error)) from error

    # --- who reads it --------------------------------------------------------------------------

    def _chosen(
        self, data: bytes, name: str, mime_type: str | None, parser: str | None
    ) -> UserParser | Format:
        if not data:
            raise DocumentEmptyError(name)
        if len(data) > self.config.max_bytes:
            raise DocumentTooLargeError(name, len(data), self.config.max_bytes)
        suffix = _suffix(name)
        chosen = (
            self.registry.find(suffix, mime_type) if parser is None else self.registry.named(parser)
        )
        if isinstance(chosen, UserParser):
            return chosen  # it knows what its documents look like
        content = sniff(data)
        if chosen is None and not suffix and mime_type in (None, "application/octet-stream"):
            chosen = _by_content(content, data)
        if content == "encrypted office":
            raise DocumentEncryptedError(name)
        if chosen is None:
            raise UnsupportedDocumentError(
                name, suffix or mime_type or content, self.supported_extensions
            )
        if content != chosen.content:
            raise _mismatch(chosen, content, name)
        return chosen

    def _source(self, name: str, mime_type: str | None) -> Source:
        charset = (mime_type or "").partition("charset=")[2].strip(" \"'")
        return Source(
            name=name,
            suffix=_suffix(name),
            mime_type=mime_type,
            charset=charset or None,
            max_bytes=self.config.max_bytes,
            max_pages=self.config.max_pages,
        )

    async def _by_docling(
        self, data: bytes, name: str, mime_type: str | None, *, ocr: bool
    ) -> Document:
        if not data:
            raise DocumentEmptyError(name)
        server = self._docling_server()
        return await server.parse_bytes(data, name, mime_type=mime_type, ocr=ocr)

    def _docling_server(self) -> ContentParser:
        if self._docling is None:
            from lexigram.ai.workers.document_ingestion.formats.docling import DoclingParser

            if self.config.docling_url is None:
                raise UnknownParserError(
                    DOCLING, list(_BY_NAME), hint="set ai_workers.ingestion.docling_url"
                )
            self._docling = DoclingParser(
                self.config.docling_url,
                api_key=self.config.docling_api_key,
                timeout=self.config.docling_timeout,
            )
        return self._docling


# --- the formats -----------------------------------------------------------------------------------


_OFFICE = "application/vnd.openxmlformats-officedocument."
FORMATS: tuple[Format, ...] = (
    Format(
        name="pdf",
        suffixes=(".pdf",),
        mime_types=("application/pdf",),
        content="pdf",
        where="pdf:parse_pdf",
    ),
    Format(
        name="html",
        suffixes=(".html", ".htm", ".xhtml"),
        mime_types=("text/html", "application/xhtml+xml"),
        content="text",
        where="html:parse_html",
    ),
    Format(
        name="markdown",
        suffixes=(".md", ".markdown"),
        mime_types=("text/markdown", "text/x-markdown"),
        content="text",
        where="text:parse_markdown",
    ),
    Format(
        name="csv",
        suffixes=(".csv", ".tsv"),
        mime_types=("text/csv", "text/tab-separated-values"),
        content="text",
        where="tables:parse_csv",
    ),
    Format(
        name="json",
        suffixes=(".json", ".jsonl", ".ndjson"),
        mime_types=("application/json", "application/x-ndjson"),
        content="text",
        where="json_data:parse_json",
    ),
    Format(
        name="mail",
        suffixes=(".eml",),
        mime_types=("message/rfc822",),
        content="text",
        where="mail:parse_mail",
    ),
    Format(
        name="docx",
        suffixes=(".docx",),
        mime_types=(f"{_OFFICE}wordprocessingml.document",),
        content="docx",
        where="office:parse_docx",
    ),
    Format(
        name="pptx",
        suffixes=(".pptx",),
        mime_types=(f"{_OFFICE}presentationml.presentation",),
        content="pptx",
        where="office:parse_pptx",
    ),
    Format(
        name="xlsx",
        suffixes=(".xlsx",),
        mime_types=(f"{_OFFICE}spreadsheetml.sheet",),
        content="xlsx",
        where="office:parse_xlsx",
    ),
    Format(
        name="text",
        suffixes=(".txt", ".text", ".log", ".rst"),
        mime_types=("text/plain", "text/x-rst"),
        content="text",
        where="text:parse_text",
    ),
)
_BY_NAME: Mapping[str, Format] = {known.name: known for known in FORMATS}


def _by_content(content: str, data: bytes) -> Format | None:
    """For a document without a suffix and a type."""
    if content == "text":
        return _BY_NAME["html" if looks_like_html(data) else "text"]
    return _BY_NAME.get(content)


def _mismatch(chosen: Format, content: str, name: str) -> IngestionInputError:
    if content == "a broken zip archive" and chosen.content in ("docx", "pptx", "xlsx"):
        return DocumentBrokenError(name, "its zip archive cannot be opened")
    if content == "binary" and chosen.content == "text":
        return DocumentBinaryError(name, "it has zero bytes")
    return DocumentTypeMismatchError(name, chosen.name, content)


async def _in_parts(
    data: bytes, source: Source, pages_at_once: int, progress: Progress | None
) -> Document:
    """A long PDF in steps, so that other documents have their turn between them."""
    from lexigram.ai.workers.document_ingestion.formats import pdf

    total = await anyio.to_thread.run_sync(pdf.count_pages, data, source)
    parts: list[pdf.PdfPages] = []
    for first in range(1, max(total, 1) + 1, pages_at_once):
        last = min(first + pages_at_once - 1, total)
        part = evolve(source, pages=(first, last))
        parts.append(await anyio.to_thread.run_sync(pdf.read_pages, data, part))
        if progress is not None:
            await progress(last, total)
    return await anyio.to_thread.run_sync(pdf.document_of, parts)


async def _by_user(chosen: UserParser, data: bytes, source: Source) -> Document:
    """Parsers of applications read files; the bytes go into one for as long as it takes."""
    folder = await anyio.to_thread.run_sync(tempfile.TemporaryDirectory)
    try:
        path = Path(folder.name) / (PurePosixPath(_path_of(source.name)).name or "document")
        await anyio.to_thread.run_sync(path.write_bytes, data)
        document = await chosen.parser.parse(path)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(folder.cleanup)
    blocks = scan(document.content) if document.blocks is None else document.blocks
    title = document.metadata.get("title") or title_of(blocks)
    found = {"parser": chosen.name, **({"title": title} if title else {})}
    return evolve(document, blocks=blocks, metadata={**found, **document.metadata})


def _storable(document: Document) -> Document:
    """Without what no store takes: half characters and zeros, as JSON may have them.

    Each is one character before and after, so that blocks stay where they are.
    """
    text = document.content
    if "\0" not in text and not _HALF.search(text):
        return document
    return evolve(document, content=_HALF.sub("\ufffd", text.replace("\0", "\ufffd")))


def _suffix(name: str) -> str:
    return PurePosixPath(_path_of(name)).suffix.lower()


def _path_of(name: str) -> str:
    """The path of a URI; a plain path is one already."""
    return unquote(urlsplit(name).path) if "://" in name else name


def _dotted(suffix: str) -> str:
    return suffix.lower() if suffix.startswith(".") else f".{suffix.lower()}"


def _file_facts(path: Path, size: int) -> dict[str, Any]:
    return {
        "file_path": str(path),
        "file_name": path.name,
        "file_size": size,
        "file_type": path.suffix.lower(),
        "source": str(path),
    }


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
