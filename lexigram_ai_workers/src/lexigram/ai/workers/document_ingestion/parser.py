"""Parse documents of any supported format: check the input, choose the parser, run it."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

import anyio.to_thread
from attrs import asdict, evolve, field, frozen

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
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.isolation import (
    Isolation,
    count_pdf_pages,
    parse_function,
)
from lexigram.ai.workers.document_ingestion.sniffing import (
    is_unicode,
    is_zip,
    looks_like_html,
    sniff,
)
from lexigram.ai.workers.document_ingestion.types import Document
from lexigram.processes import ProcessPool

DOCLING = "docling"
_LARGE_BYTES = 1024 * 1024  # parsed in a few hundredths of a second
_LARGE_HTML_BYTES = 256 * 1024  # HTML is slower
_ANY_SIZE = 0  # native code or packed: the time does not depend on the size
_SURROGATES = re.compile("[\ud800-\udfff]")
Progress = Callable[[int, int], Any]


@runtime_checkable
class DocumentLoader(Protocol):
    """Loads documents from a source."""

    async def load(self, source: Any) -> Any:
        """Return the documents of the source."""
        ...


@runtime_checkable
class DocumentParser(Protocol):
    """Parses files; register a parser with ``UniversalDocumentParser.register``."""

    async def parse(self, path: Path) -> Document:
        """Return text and metadata. Raises IngestionInputError for an invalid file.

        Parsing is deterministic.
        """
        ...

    async def extract_metadata(self, path: Path) -> dict[str, Any]:
        """Return the metadata that is available without parsing."""
        ...


class ContentParser(Protocol):
    """Parses bytes of any format, such as a server does."""

    async def parse_bytes(
        self, data: bytes, name: str, *, mime_type: str | None = None, ocr: bool = True
    ) -> Document:
        """Return the document. IngestionInputError is permanent, other errors may be retried."""
        ...


@frozen(kw_only=True)
class Format:
    """A built-in document format."""

    name: str
    suffixes: tuple[str, ...]
    mime_types: tuple[str, ...]
    # the required result of ``sniff``
    content: str
    # module below ``formats`` and function; imported on first use, as the libraries are large
    function_path: str
    # size in bytes from which a separate process is used
    isolated_from: int = _LARGE_BYTES

    def parse(self, data: bytes, source: Source) -> Document:
        """Parse bytes. CPU-bound: not for the event loop."""
        return parse_function(self.function_path)(data, source)


@frozen
class UserParser:
    """A parser of the application."""

    name: str
    parser: DocumentParser
    suffixes: tuple[str, ...] = ()
    mime_types: tuple[str, ...] = ()


@frozen
class ParserRegistry:
    """Parsers by name, suffix and MIME type; those of the application take precedence."""

    _user: dict[str, UserParser] = field(factory=dict[str, UserParser], init=False)

    def register(
        self,
        name: str,
        parser: DocumentParser,
        *,
        suffixes: Sequence[str] = (),
        mime_types: Sequence[str] = (),
    ) -> None:
        """Register a parser by name, for documents of these types.

        A second parser of the same name replaces the first.
        """
        endings = tuple(_add_dot(suffix) for suffix in suffixes)
        self._user[name] = UserParser(
            name, parser, endings, tuple(mime.lower() for mime in mime_types)
        )

    def get(self, name: str) -> UserParser | Format:
        """Return a parser by name. Raises UnknownParserError."""
        found = self._user.get(name) or _BY_NAME.get(name)
        if found is None:
            raise UnknownParserError(name, [*self._user, *_BY_NAME])
        return found

    def find(self, suffix: str, mime_type: str | None) -> UserParser | Format | None:
        """Find a parser by suffix, else by MIME type; the last registered one takes precedence."""
        candidates: tuple[UserParser | Format, ...] = (*reversed(self._user.values()), *FORMATS)
        mime = (mime_type or "").partition(";")[0].strip().lower()
        for known in candidates:
            if suffix in known.suffixes:
                return known
        for known in candidates:
            if mime in known.mime_types:
                return known
        return None

    def mime_type_of(self, name: str) -> str:
        """Return the MIME type for the suffix of a name; "" if unknown.

        ``mimetypes`` is not used: its results depend on files of the machine.
        """
        found = self.find(_suffix(name), None)
        return found.mime_types[0] if found is not None and found.mime_types else ""

    @property
    def suffixes(self) -> list[str]:
        """All supported suffixes, sorted."""
        user_suffixes = {suffix for known in self._user.values() for suffix in known.suffixes}
        return sorted(user_suffixes | {suffix for known in FORMATS for suffix in known.suffixes})


class UniversalDocumentParser:
    """Parses PDF, HTML, Markdown, text, CSV, JSON and mail; Office files with the extra.

    ``allowed_root`` (a folder or several) restricts the readable files, after resolving links;
    the default is the configuration. Large documents, PDF and Office files are parsed in the
    pool ``processes``, or each in a new process. Implements DocumentParser.
    """

    def __init__(
        self,
        allowed_root: Path | Sequence[Path] | None = None,
        *,
        config: IngestionConfig | None = None,
        registry: ParserRegistry | None = None,
        docling: ContentParser | None = None,
        processes: ProcessPool | None = None,
    ) -> None:
        self.config = config or IngestionConfig()
        self.isolation = Isolation(self.config, processes)
        self.registry = registry or ParserRegistry()
        self._docling = docling
        roots = [allowed_root] if isinstance(allowed_root, str | Path) else allowed_root
        self.allowed_roots = tuple(
            Path(root) for root in (self.config.allowed_roots if roots is None else roots)
        )

    @property
    def supported_extensions(self) -> list[str]:
        """The supported suffixes, sorted."""
        return self.registry.suffixes

    def register(
        self,
        name: str,
        parser: DocumentParser,
        *,
        suffixes: Sequence[str] = (),
        mime_types: Sequence[str] = (),
    ) -> None:
        """Register a custom parser for documents of these types."""
        self.registry.register(name, parser, suffixes=suffixes, mime_types=mime_types)

    def check_parser(self, name: str) -> None:
        """Raise UnknownParserError unless there is a parser of that name."""
        if name != DOCLING:
            self.registry.get(name)
        else:
            self._get_docling_parser()

    async def parse(self, path: Path | str, parser: str | None = None) -> Document:
        """Parse a file. Raises an IngestionInputError for an invalid file."""
        data = await self.read(path)
        document = await self.parse_bytes(data, str(path), parser=parser)
        return evolve(
            document, metadata={**_file_metadata(Path(path), len(data)), **document.metadata}
        )

    async def extract_metadata(self, path: Path | str) -> dict[str, Any]:
        """Return the file-system metadata of a readable file."""
        found = await anyio.to_thread.run_sync(self._check_file, Path(path))
        modified = datetime.fromtimestamp(found.st_mtime, UTC).isoformat()
        return {**_file_metadata(Path(path), found.st_size), "file_modified": modified}

    async def read(self, path: Path | str) -> bytes:
        """Read a file, up to the size limit."""
        return await anyio.to_thread.run_sync(self._read, Path(path))

    async def validate(
        self, data: bytes, name: str, *, mime_type: str | None = None, parser: str | None = None
    ) -> str:
        """Return the name of the parser for a document. Raises errors that need no parsing."""
        if parser == DOCLING:
            self.check_parser(parser)
            return DOCLING
        chosen = await self._choose(data, name, mime_type, parser)
        if isinstance(chosen, Format) and chosen.name == "pdf":
            # opens the file: detects truncation and passwords
            await self._count_pages(data, self._source(name, mime_type))
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
        """Parse bytes; ``name`` is the path or URI.

        With a Docling server in the configuration, ``ocr`` uses it for documents with scanned
        pages, and the parser ``docling`` for any document. ``pages_at_once`` parses a long PDF
        in parts; the result is the same.
        """
        if parser == DOCLING:
            document = await self._parse_with_docling(data, name, mime_type, ocr=ocr)
        else:
            chosen = await self._choose(data, name, mime_type, parser)
            source = self._source(name, mime_type)
            if isinstance(chosen, UserParser):
                document = await _parse_with_user_parser(chosen, data, source)
            elif chosen.name == "pdf" and pages_at_once is not None:
                document = await self._parse_in_parts(data, source, pages_at_once, progress)
            elif len(data) >= chosen.isolated_from:
                document = await self.isolation.parse(chosen.function_path, data, source)
            else:
                document = await anyio.to_thread.run_sync(chosen.parse, data, source)
            scanned = document.metadata.get("pages_needing_ocr")
            if scanned and ocr and (self._docling or self.config.docling_url):
                document = await self._parse_with_docling(data, name, mime_type, ocr=True)
        if not document.content.strip():
            raise DocumentWithoutTextError(name, document.metadata.get("pages_needing_ocr", ()))
        return _replace_unstorable(document)

    # --- reading ----------------------------------------------------------------------

    def _check_file(self, path: Path) -> os.stat_result:
        """Return the stat result; raise unless it is a regular file inside the roots."""
        try:
            target = path.resolve(strict=True)
            found = target.stat()
        except FileNotFoundError as error:
            raise DocumentMissingError(str(path)) from error
        except (OSError, RuntimeError) as error:  # RuntimeError: a link loop
            raise DocumentUnreadableError(str(path), _reason(error)) from error
        roots = [root.resolve() for root in self.allowed_roots]
        if roots and not any(target.is_relative_to(root) for root in roots):
            roots_shown = [str(root) for root in self.allowed_roots]
            raise DocumentOutsideRootError(str(path), str(target), roots_shown)
        if not stat.S_ISREG(found.st_mode):
            raise DocumentUnreadableError(str(path), "it is not a regular file")
        if found.st_size > self.config.max_bytes:
            raise DocumentTooLargeError(str(path), found.st_size, self.config.max_bytes)
        return found

    def _read(self, path: Path) -> bytes:
        self._check_file(path)
        try:
            # O_NOFOLLOW: the checked file may have been replaced by a link.
            descriptor = os.open(path.resolve(strict=True), os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as file:
                return file.read(self.config.max_bytes + 1)
        except OSError as error:
            raise DocumentUnreadableError(str(path), _reason(error)) from error

    # --- choosing the parser --------------------------------------------------------------------------

    async def _choose(
        self, data: bytes, name: str, mime_type: str | None, parser: str | None
    ) -> UserParser | Format:
        if not data:
            raise DocumentEmptyError(name)
        if len(data) > self.config.max_bytes:
            raise DocumentTooLargeError(name, len(data), self.config.max_bytes)
        if len(data) >= _LARGE_BYTES and is_zip(data):  # its directory may exhaust the memory
            content = await self.isolation.run(name, sniff, data)
        else:
            content = await anyio.to_thread.run_sync(sniff, data)
        return self._select_parser(data, content, name, mime_type, parser)

    def _select_parser(
        self, data: bytes, content: str, name: str, mime_type: str | None, parser: str | None
    ) -> UserParser | Format:
        suffix = _suffix(name)
        chosen = (
            self.registry.find(suffix, mime_type) if parser is None else self.registry.get(parser)
        )
        if isinstance(chosen, UserParser):
            return chosen  # custom parsers do their own checks
        if chosen is None:
            chosen = _detect_format(content, data, suffix)
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

    async def _count_pages(self, data: bytes, source: Source) -> int:
        return await self.isolation.run(source.name, count_pdf_pages, data, asdict(source))

    async def _parse_in_parts(
        self, data: bytes, source: Source, pages_at_once: int, progress: Progress | None
    ) -> Document:
        """Parse a long PDF in parts, so that other documents can run in between."""
        total = await self._count_pages(data, source)
        parts: list[tuple[Any, ...]] = []
        for first in range(1, max(total, 1) + 1, pages_at_once):
            last = min(first + pages_at_once - 1, total)
            parts.append(await self.isolation.pdf_pages(data, evolve(source, pages=(first, last))))
            if progress is not None:
                await progress(last, total)
        return await self.isolation.join_pdf(parts, source.name)

    async def _parse_with_docling(
        self, data: bytes, name: str, mime_type: str | None, *, ocr: bool
    ) -> Document:
        if not data:
            raise DocumentEmptyError(name)
        server = self._get_docling_parser()
        return await server.parse_bytes(data, name, mime_type=mime_type, ocr=ocr)

    def _get_docling_parser(self) -> ContentParser:
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
        function_path="pdf:parse_pdf",
        isolated_from=_ANY_SIZE,
    ),
    Format(
        name="html",
        suffixes=(".html", ".htm", ".xhtml"),
        mime_types=("text/html", "application/xhtml+xml"),
        content="text",
        function_path="html:parse_html",
        isolated_from=_LARGE_HTML_BYTES,
    ),
    Format(
        name="markdown",
        suffixes=(".md", ".markdown"),
        mime_types=("text/markdown", "text/x-markdown"),
        content="text",
        function_path="text:parse_markdown",
    ),
    Format(
        name="csv",
        suffixes=(".csv", ".tsv"),
        mime_types=("text/csv", "text/tab-separated-values"),
        content="text",
        function_path="tables:parse_csv",
    ),
    Format(
        name="json",
        suffixes=(".json", ".jsonl", ".ndjson"),
        mime_types=("application/json", "application/x-ndjson"),
        content="text",
        function_path="json_data:parse_json",
    ),
    Format(
        name="mail",
        suffixes=(".eml",),
        mime_types=("message/rfc822",),
        content="text",
        function_path="mail:parse_mail",
        isolated_from=_LARGE_HTML_BYTES,
    ),
    Format(
        name="docx",
        suffixes=(".docx",),
        mime_types=(f"{_OFFICE}wordprocessingml.document",),
        content="docx",
        function_path="office:parse_docx",
        isolated_from=_ANY_SIZE,
    ),
    Format(
        name="pptx",
        suffixes=(".pptx",),
        mime_types=(f"{_OFFICE}presentationml.presentation",),
        content="pptx",
        function_path="office:parse_pptx",
        isolated_from=_ANY_SIZE,
    ),
    Format(
        name="xlsx",
        suffixes=(".xlsx",),
        mime_types=(f"{_OFFICE}spreadsheetml.sheet",),
        content="xlsx",
        function_path="office:parse_xlsx",
        isolated_from=_ANY_SIZE,
    ),
    Format(
        name="text",
        suffixes=(".txt", ".text", ".log", ".rst"),
        mime_types=("text/plain", "text/x-rst"),
        content="text",
        function_path="text:parse_text",
    ),
)
_BY_NAME: Mapping[str, Format] = {known.name: known for known in FORMATS}


def _detect_format(content: str, data: bytes, suffix: str) -> Format | None:
    """Detect the format of a document with unknown suffix and type."""
    if content != "text":
        return _BY_NAME.get(content)
    if suffix and not is_unicode(data):
        return None  # binary data without zero bytes would decode in a legacy charset
    return _BY_NAME["html" if looks_like_html(data) else "text"]


def _mismatch(chosen: Format, content: str, name: str) -> IngestionInputError:
    if content == "a broken zip archive" and chosen.content in ("docx", "pptx", "xlsx"):
        return DocumentBrokenError(name, "the zip archive cannot be opened")
    if content == "binary" and chosen.content == "text":
        return DocumentBinaryError(name, "it contains zero bytes")
    return DocumentTypeMismatchError(name, chosen.name, content)


async def _parse_with_user_parser(chosen: UserParser, data: bytes, source: Source) -> Document:
    """Write the bytes to a temporary file and parse it with a custom parser."""
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


def _replace_unstorable(document: Document) -> Document:
    """Replace characters that stores reject: surrogates and zero characters.

    Each is replaced by one character, so that positions stay valid.
    """
    text = document.content
    if "\0" not in text and not _SURROGATES.search(text):
        return document
    return evolve(document, content=_SURROGATES.sub("\ufffd", text.replace("\0", "\ufffd")))


def _suffix(name: str) -> str:
    return PurePosixPath(_path_of(name)).suffix.lower()


def _path_of(name: str) -> str:
    """Return the path of a URI, or a plain path unchanged."""
    return unquote(urlsplit(name).path) if "://" in name else name


def _add_dot(suffix: str) -> str:
    return suffix.lower() if suffix.startswith(".") else f".{suffix.lower()}"


def _file_metadata(path: Path, size: int) -> dict[str, Any]:
    return {
        "file_path": str(path),
        "file_name": path.name,
        "file_size": size,
        "file_type": path.suffix.lower(),
        "source": str(path),
    }


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
