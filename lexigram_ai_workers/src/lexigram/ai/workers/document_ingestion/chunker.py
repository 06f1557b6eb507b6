"""Cut a document into chunks: by headings, never inside code, with exact character ranges."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attrs import asdict, field, fields_dict, frozen

from lexigram.ai.workers.document_ingestion.blocks import scan
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig
from lexigram.ai.workers.document_ingestion.duplicates import near_duplicates
from lexigram.ai.workers.document_ingestion.errors import ChunkingConfigError
from lexigram.ai.workers.document_ingestion.types import (
    Block,
    BlockKind,
    Document,
    DocumentChunk,
)
from lexigram.config.structure import structure
from lexigram.config.tree import ConfigTrace

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Measured on this repository: 0.98 of what the tokenizer of Llama 2 counts in prose and code, at
# 16 MB/s instead of 1.2. Letters of alphabets in fives, any other sign by itself.
_TOKEN = re.compile(r"[A-Za-z0-9_\u00c0-\u024f\u0370-\u04ff]{1,5}|\S")
# The splitter takes time by the square of a text without paragraphs: 21 s for 200 kB, 1 s in parts.
_WINDOW = 8_000  # characters
_FEW = 8  # of a chunk: less is no chunk of its own before code that is too long
_WHITE = re.compile(r"\s+")
_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")


@frozen
class DocumentChunker:
    """Implements ChunkerProtocol.

    A chunk belongs to one heading and never starts or ends inside a code fence; code longer
    than ``chunk_size`` is one chunk, the only one that may be longer.
    """

    config: ChunkingConfig = field(factory=ChunkingConfig)

    def chunk(self, text: str, metadata: Mapping[str, Any] | None = None) -> list[DocumentChunk]:
        """The chunks of a Markdown text, in order."""
        return self.chunk_document(Document(text, metadata or {}))

    def chunk_document(self, document: Document) -> list[DocumentChunk]:
        """The chunks of a parsed document, with pages where it has some."""
        text = document.content
        blocks = scan(text) if document.blocks is None else document.blocks
        cutter = _Cutter(text, self.config, _ruler(text, self.config))
        pieces = [
            (*trimmed, section.path)
            for section in _sections(text, blocks)
            for start, end in cutter.pieces(section)
            if (trimmed := _trimmed(text, start, end))
        ]
        equal = self._duplicates([text[start:end] for start, end, _ in pieces])
        chunks: list[DocumentChunk] = []
        numbers: list[int] = []  # of the chunks by piece: those left out shift the others
        for (start, end, path), original in zip(pieces, equal, strict=True):
            numbers.append(len(chunks))
            if original is not None and self.config.near_duplicates == "skip":
                numbers[-1] = numbers[original]
                continue
            chunks.append(
                DocumentChunk(
                    text=text[start:end],
                    start=start,
                    end=end,
                    index=len(chunks),
                    heading_path=path,
                    page=document.page_at(start),
                    duplicate_of=None if original is None else numbers[original],
                    metadata=document.metadata,
                )
            )
        return chunks

    def _duplicates(self, texts: Sequence[str]) -> Sequence[int | None]:
        if self.config.near_duplicates == "off" or len(texts) < 2:
            return [None] * len(texts)
        return near_duplicates(texts, self.config.duplicate_threshold)


def chunking_config(
    given: Mapping[str, Any] | ChunkingConfig | None, default: ChunkingConfig
) -> ChunkingConfig:
    """The default with what is given laid over it. Raises ChunkingConfigError."""
    if given is None or isinstance(given, ChunkingConfig):
        return given or default
    made, problems = structure(ChunkingConfig, {**asdict(default), **given}, (), ConfigTrace())
    if made is None:
        raise ChunkingConfigError(
            "settings of chunking: "
            + "; ".join(f"{problem.key}: {problem.message}" for problem in problems),
            details={"keys": [problem.key for problem in problems]},
            hint=f"there are: {', '.join(fields_dict(ChunkingConfig))}",
        )
    return made


@frozen
class _Section:
    """The text under one heading, the heading included."""

    start: int
    end: int
    path: tuple[str, ...]
    # ranges that must not be cut
    code: tuple[tuple[int, int], ...]


def _sections(text: str, blocks: Sequence[Block]) -> Iterator[_Section]:
    """Every heading starts one; headings without text join the deeper one below them."""
    path: list[tuple[int, str]] = []
    start = 0
    code: list[tuple[int, int]] = []
    is_empty = True  # nothing but headings since ``start``
    for block in blocks:
        if block.kind is not BlockKind.HEADING:
            is_empty = False
            if block.kind is BlockKind.CODE:
                code.append((block.start, block.end))
            continue
        goes_deeper = not path or block.level > path[-1][0]
        if block.start > start and not (is_empty and goes_deeper):
            yield _Section(start, block.start, tuple(title for _, title in path), tuple(code))
            start, code = block.start, []
        is_empty = True
        while path and path[-1][0] >= block.level:
            path.pop()
        path.append((block.level, block.title))
    yield _Section(start, len(text), tuple(title for _, title in path), tuple(code))


@frozen
class _Cutter:
    """Cuts the sections of one text."""

    text: str
    config: ChunkingConfig
    ruler: _Ruler

    def pieces(self, section: _Section) -> Iterator[tuple[int, int]]:
        """Ranges of one section, with the overlap."""
        size, overlap = self.config.chunk_size, self.config.chunk_overlap
        if self.ruler.size(section.start, section.end) <= size:
            yield section.start, section.end
            return
        capacity = size - overlap  # the overlap comes on top and stays inside the size
        before: int | None = None
        for start, end in self._packed(section, capacity):
            first = start
            if before is not None and overlap and self.ruler.size(start, end) <= capacity:
                first = self._overlapping(start, before, section)
            yield first, end
            before = start

    def _packed(self, section: _Section, capacity: int) -> Iterator[tuple[int, int]]:
        """Neighbouring parts together as long as they fit."""
        current: tuple[int, int] | None = None
        for start, end in self._parts(section, capacity):
            if current is not None and self._go_together(current, start, end, capacity):
                current = (current[0], end)
                continue
            if current is not None:
                yield current
            current = (start, end)
        if current is not None:
            yield current

    def _go_together(self, current: tuple[int, int], start: int, end: int, capacity: int) -> bool:
        if self.ruler.size(current[0], end) <= capacity:
            return True
        # Code that is too long anyway takes the few words that introduce it along.
        is_too_long = self.ruler.size(start, end) > capacity
        return is_too_long and self.ruler.size(*current) <= capacity // _FEW

    def _parts(self, section: _Section, capacity: int) -> Iterator[tuple[int, int]]:
        """Code as a whole, prose in parts that fit."""
        position = section.start
        for start, end in section.code:
            yield from self._prose(position, start, capacity)
            yield start, end
            position = end
        yield from self._prose(position, section.end, capacity)

    def _prose(self, start: int, end: int, capacity: int) -> Iterator[tuple[int, int]]:
        if start >= end:
            return
        for first, last in self._windows(self._separated(start, end)):
            if self.ruler.size(first, last) <= capacity:
                yield first, last
            else:
                density = (last - first) / self.ruler.size(first, last)
                yield from self._by_sense(first, last, capacity, max(1, int(capacity * density)))

    def _separated(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """At the separator, which stays with what is before it."""
        separator = self.config.separator
        while separator and (found := self.text.find(separator, start, end)) >= 0:
            yield start, found + len(separator)
            start = found + len(separator)
        if start < end:
            yield start, end

    def _windows(self, spans: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Spans no longer than the splitter is quick with, cut at whitespace where there is any."""
        for start, end in spans:
            first = start
            while end - first > _WINDOW:
                limit = first + _WINDOW
                cut = max(self.text.rfind(sign, first, limit) for sign in "\n ") + 1
                yield first, cut or limit
                first = cut or limit
            yield first, end

    def _by_sense(
        self, start: int, end: int, capacity: int, characters: int
    ) -> Iterator[tuple[int, int]]:
        """At sentences, words or signs, whatever is the largest that fits."""
        from semantic_text_splitter import MarkdownSplitter

        splitter = MarkdownSplitter(characters, trim=False)
        for offset, piece in splitter.chunk_indices(self.text[start:end]):
            first, last = start + offset, start + offset + len(piece)
            if characters > 1 and self.ruler.size(first, last) > capacity:
                yield from self._by_sense(first, last, capacity, characters // 2)
            else:
                yield first, last

    def _overlapping(self, start: int, limit: int, section: _Section) -> int:
        """Where the overlap before ``start`` begins: at a word, behind any code."""
        first = max(limit, self.ruler.back(start, self.config.chunk_overlap))
        number = bisect_left(section.code, (first, 0)) - 1  # the last code that begins before
        if number >= 0 and first < section.code[number][1]:
            first = min(section.code[number][1], start)
        if first > 0 and not self.text[first - 1].isspace():
            white = _WHITE.search(self.text, first, start)
            if white is not None and white.end() < start:
                return white.end()
        return first


class _Characters:
    """Counts characters."""

    def size(self, start: int, end: int) -> int:
        return end - start

    def back(self, position: int, size: int) -> int:
        return max(0, position - size)


class _Tokens:
    """Counts tokens of a text that was looked through once; a cut token counts on both sides."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]

    def size(self, start: int, end: int) -> int:
        return max(0, bisect_left(self._starts, end) - bisect_right(self._ends, start))

    def back(self, position: int, size: int) -> int:
        first = bisect_right(self._ends, position) - size
        return self._starts[first] if first > 0 else 0


_Ruler = _Characters | _Tokens


def _ruler(text: str, config: ChunkingConfig) -> _Ruler:
    if config.unit == "characters":
        return _Characters()
    if config.tokenizer is not None:
        encoding = _tokenizer(config.tokenizer).encode(text, add_special_tokens=False)
        return _Tokens(encoding.offsets)
    return _Tokens([found.span() for found in _TOKEN.finditer(text)])


@lru_cache(maxsize=4)
def _tokenizer(path: str) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the library raises nothing more precise
        raise ChunkingConfigError(
            f"the tokenizer {path!r} cannot be read: {error}",
            hint="give the path of a tokenizer.json, or leave 'tokenizer' out",
            cause=error,
        ) from error
    # Its own settings would make every text look short.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Without blank lines around; the indentation of the first line stays."""
    end = start + len(text[start:end].rstrip())
    leading = _BLANK_LINES.match(text, start, end)
    start = start if leading is None else leading.end()
    return (start, end) if start < end else None
