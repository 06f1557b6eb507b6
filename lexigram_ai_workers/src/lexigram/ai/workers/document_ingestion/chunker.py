"""Split a document into chunks: by headings, never inside code, with exact character ranges."""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attrs import asdict, field, fields_dict, frozen

from lexigram.ai.workers.document_ingestion.blocks import scan
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig
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

# Estimates tokens. Measured on this repository: 0.98 of the count of the Llama 2 tokenizer in prose
# and code, at 16 MB/s instead of 1.2. A token is up to five word characters, or any other character.
_TOKEN = re.compile(r"[A-Za-z0-9_\u00c0-\u024f\u0370-\u04ff]{1,5}|\S")
# The splitter takes quadratic time for text without paragraphs: 21 s for 200 kB, 1 s in windows.
_WINDOW = 8_000  # characters
_PAGE = 16_384  # characters tokenized at once
_PAGES = 8
_MAX_TITLE_LENGTH = 500  # characters; every chunk repeats its headings
_SMALL_PART_SHARE = 8  # shorter text is merged with a following oversized code block
_WHITE = re.compile(r"\s+")
_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")


@frozen
class DocumentChunker:
    """Implements ChunkerProtocol.

    A chunk belongs to one heading and never starts or ends inside a code fence. Code longer than
    ``chunk_size`` is one chunk; only such chunks exceed the size.
    """

    config: ChunkingConfig = field(factory=ChunkingConfig)

    def chunk(self, text: str, metadata: Mapping[str, Any] | None = None) -> list[DocumentChunk]:
        """Return the chunks of a Markdown text, in order."""
        return self.chunk_document(Document(text, metadata or {}))

    def chunk_document(self, document: Document) -> list[DocumentChunk]:
        """Return the chunks of a parsed document, with page numbers if it has pages."""
        return list(self.stream(document))

    def stream(self, document: Document) -> Iterator[DocumentChunk]:
        """Yield the chunks one by one, to save memory for large documents."""
        text = document.content
        blocks = scan(text) if document.blocks is None else document.blocks
        splitter = _Splitter(text, self.config, _create_counter(text, self.config))
        similar = (
            None
            if self.config.near_duplicates == "off"
            else NearDuplicates(self.config.duplicate_threshold)
        )
        numbers = array("I")  # chunk index by piece: skipped duplicates shift the following ones
        index = 0
        for section in _split_sections(text, blocks):
            for piece in splitter.split(section):
                trimmed = _trim(text, *piece)
                if trimmed is None:
                    continue
                start, end = trimmed
                original = None if similar is None else similar.add(text[start:end])
                if original is not None and self.config.near_duplicates == "skip":
                    numbers.append(numbers[original])
                    continue
                numbers.append(index)
                yield DocumentChunk(
                    text=text[start:end],
                    start=start,
                    end=end,
                    index=index,
                    heading_path=section.path,
                    page=document.page_at(start),
                    duplicate_of=None if original is None else numbers[original],
                    metadata=document.metadata,
                )
                index += 1


def chunking_config(
    given: Mapping[str, Any] | ChunkingConfig | None, default: ChunkingConfig
) -> ChunkingConfig:
    """Apply settings to the default config. Raises ChunkingConfigError."""
    if given is None or isinstance(given, ChunkingConfig):
        return given or default
    config, problems = structure(ChunkingConfig, {**asdict(default), **given}, (), ConfigTrace())
    if config is None:
        raise ChunkingConfigError(
            "invalid chunking settings: "
            + "; ".join(f"{problem.key}: {problem.message}" for problem in problems),
            details={"keys": [problem.key for problem in problems]},
            hint=f"use the settings: {', '.join(fields_dict(ChunkingConfig))}",
        )
    return config


@frozen
class _Section:
    """The text under one heading, including the heading."""

    start: int
    end: int
    path: tuple[str, ...]
    # ranges of code, which must not be split
    code: tuple[tuple[int, int], ...]


def _split_sections(text: str, blocks: Sequence[Block]) -> Iterator[_Section]:
    """Yield a section per heading; headings without text are merged into the next deeper one."""
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
        path.append((block.level, block.title[:_MAX_TITLE_LENGTH]))
    yield _Section(start, len(text), tuple(title for _, title in path), tuple(code))


@frozen
class _Splitter:
    """Splits the sections of a text."""

    text: str
    config: ChunkingConfig
    counter: _Counter

    def split(self, section: _Section) -> Iterator[tuple[int, int]]:
        """Yield the ranges of the chunks of a section, with overlap."""
        size, overlap = self.config.chunk_size, self.config.chunk_overlap
        if self.counter.fits(section.start, section.end, size):
            yield section.start, section.end
            return
        capacity = size - overlap  # the overlap is added and must fit into the size
        before: int | None = None
        for start, end in self._pack(section, capacity):
            first = start
            if before is not None and overlap and self.counter.fits(start, end, capacity):
                first = self._find_overlap_start(start, before, section)
            yield first, end
            before = start

    def _pack(self, section: _Section, capacity: int) -> Iterator[tuple[int, int]]:
        """Merge adjacent parts as long as they fit."""
        current: tuple[int, int] | None = None
        for start, end in self._split_parts(section, capacity):
            if current is not None and self._go_together(current, start, end, capacity):
                current = (current[0], end)
                continue
            if current is not None:
                yield current
            current = (start, end)
        if current is not None:
            yield current

    def _go_together(self, current: tuple[int, int], start: int, end: int, capacity: int) -> bool:
        if self.counter.fits(current[0], end, capacity):
            return True
        # Oversized code is merged with the few words before it.
        is_too_long = not self.counter.fits(start, end, capacity)
        return is_too_long and self.counter.fits(*current, capacity // _SMALL_PART_SHARE)

    def _split_parts(self, section: _Section, capacity: int) -> Iterator[tuple[int, int]]:
        """Yield code blocks whole, and prose in parts that fit."""
        position = section.start
        for start, end in section.code:
            yield from self._split_prose(position, start, capacity)
            yield start, end
            position = end
        yield from self._split_prose(position, section.end, capacity)

    def _split_prose(self, start: int, end: int, capacity: int) -> Iterator[tuple[int, int]]:
        if start >= end:
            return
        for first, last in self._split_windows(self._split_at_separator(start, end)):
            if self.counter.fits(first, last, capacity):
                yield first, last
            else:
                density = (last - first) / self.counter.size(first, last)
                yield from self._split_semantically(
                    first, last, capacity, max(1, int(capacity * density))
                )

    def _split_at_separator(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Split at the separator, which stays at the end of a part."""
        separator = self.config.separator
        while separator and (found := self.text.find(separator, start, end)) >= 0:
            yield start, found + len(separator)
            start = found + len(separator)
        if start < end:
            yield start, end

    def _split_windows(self, spans: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Cut long spans into windows, at whitespace if possible, to keep the splitter fast."""
        for start, end in spans:
            first = start
            while end - first > _WINDOW:
                limit = first + _WINDOW
                cut = max(self.text.rfind(sign, first, limit) for sign in "\n ") + 1
                yield first, cut or limit
                first = cut or limit
            yield first, end

    def _split_semantically(
        self, start: int, end: int, capacity: int, characters: int
    ) -> Iterator[tuple[int, int]]:
        """Split at the largest unit that fits: sentences, words or characters."""
        from semantic_text_splitter import MarkdownSplitter

        splitter = MarkdownSplitter(characters, trim=False)
        for offset, piece in splitter.chunk_indices(self.text[start:end]):
            first, last = start + offset, start + offset + len(piece)
            if characters > 1 and not self.counter.fits(first, last, capacity):
                yield from self._split_semantically(first, last, capacity, characters // 2)
            else:
                yield first, last

    def _find_overlap_start(self, start: int, limit: int, section: _Section) -> int:
        """Return the start of the overlap before ``start``: at a word, after any code."""
        first = max(limit, self.counter.move_back(start, self.config.chunk_overlap))
        number = bisect_left(section.code, (first, 0)) - 1  # the last code block that starts before
        if number >= 0 and first < section.code[number][1]:
            first = min(section.code[number][1], start)
        if first > 0 and not self.text[first - 1].isspace():
            white = _WHITE.search(self.text, first, start)
            if white is not None and white.end() < start:
                return white.end()
        return first


class _CharacterCounter:
    """Counts characters."""

    def size(self, start: int, end: int) -> int:
        return end - start

    def fits(self, start: int, end: int, size: int) -> bool:
        return end - start <= size

    def move_back(self, position: int, size: int) -> int:
        return max(0, position - size)


class _TokenCounter:
    """Counts tokens page by page; a split token counts on both sides.

    Text is read front to back and few pages are kept: the positions of all tokens of 50 MB would
    need 1.5 GB. A token across a page boundary counts as two.
    """

    def __init__(self, text: str, spans: Callable[[str], Iterable[tuple[int, int]]]) -> None:
        self._text = text
        self._spans = spans
        # page number -> starts and ends of its tokens
        self._pages: OrderedDict[int, tuple[array[int], array[int]]] = OrderedDict()

    def size(self, start: int, end: int) -> int:
        return sum(self._counts(start, end))

    def fits(self, start: int, end: int, size: int) -> bool:
        left = size
        for count in self._counts(start, end):
            left -= count
            if left < 0:
                return False
        return True

    def move_back(self, position: int, size: int) -> int:
        number = min(position, len(self._text) - 1) // _PAGE
        while number >= 0:
            starts, ends = self._page(number)
            known = bisect_right(ends, position)
            if known >= size:
                return starts[known - size] if size else position
            size -= known
            number -= 1
        return 0

    def _counts(self, start: int, end: int) -> Iterator[int]:
        """Yield the number of tokens per page of a range."""
        for number in range(start // _PAGE, -(-end // _PAGE)):
            starts, ends = self._page(number)
            yield max(0, bisect_left(starts, end) - bisect_right(ends, start))

    def _page(self, number: int) -> tuple[array[int], array[int]]:
        found = self._pages.get(number)
        if found is None:
            first = number * _PAGE
            starts, ends = array("Q"), array("Q")
            for start, end in self._spans(self._text[first : first + _PAGE]):
                starts.append(first + start)
                ends.append(first + end)
            found = self._pages[number] = starts, ends
            if len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        return found


_Counter = _CharacterCounter | _TokenCounter


def _create_counter(text: str, config: ChunkingConfig) -> _Counter:
    if config.unit == "characters":
        return _CharacterCounter()
    if config.tokenizer is not None:
        tokenizer = _load_tokenizer(config.tokenizer)
        return _TokenCounter(
            text, lambda page: tokenizer.encode(page, add_special_tokens=False).offsets
        )
    return _TokenCounter(text, lambda page: (found.span() for found in _TOKEN.finditer(page)))


@lru_cache(maxsize=4)
def _load_tokenizer(path: str) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the library raises nothing more precise
        raise ChunkingConfigError(
            f"cannot read the tokenizer {path!r}: {error}",
            hint="set 'tokenizer' to the path of a tokenizer.json, or omit it",
            cause=error,
        ) from error
    # Truncation and padding would falsify the counts.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _trim(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Remove surrounding blank lines; the indentation of the first line is kept."""
    end = start + len(text[start:end].rstrip())
    leading = _BLANK_LINES.match(text, start, end)
    start = start if leading is None else leading.end()
    return (start, end) if start < end else None


# --- near-duplicates ---

_WORD = re.compile(r"\w+")
_PERMUTATIONS = 128
# With four values per band, pairs above a similarity of about 0.6 are compared; with eight only pairs
# above about 0.8, in half the memory (2.5 KB per text).
_BANDS, _NARROW_BANDS, _NARROW_BANDS_FROM = 32, 16, 0.85
_MAX_CANDIDATES = 64  # comparing more similar texts would take quadratic time
_SEED = 42
_SHINGLE = 3


class NearDuplicates:
    """An index of texts; ``add`` finds a near-duplicate of a new text."""

    def __init__(self, threshold: float) -> None:
        from rensa import RMinHash, RMinHashLSH  # type: ignore[import-untyped]

        self._threshold = threshold
        self._make: Callable[[int, int], Any] = RMinHash
        bands = _BANDS if threshold < _NARROW_BANDS_FROM else _NARROW_BANDS
        self._index: Any = RMinHashLSH(threshold, _PERMUTATIONS, bands)
        self._hashes: dict[int, Any] = {}
        # digest of the words -> number, for exact duplicates
        self._equal: dict[bytes, int] = {}
        self._count = 0

    def add(self, text: str) -> int | None:
        """Add a text; return the number, from 0, of an earlier near-duplicate, or None."""
        number, self._count = self._count, self._count + 1
        words = _WORD.findall(text.lower())
        digest = hashlib.blake2b(" ".join(words).encode("utf-8", "surrogatepass"), digest_size=16)
        original = self._equal.setdefault(digest.digest(), number)
        if original != number:
            return original
        if len(words) < _SHINGLE:
            return None
        hashed = self._make(_PERMUTATIONS, _SEED)
        hashed.update([" ".join(words[i : i + _SHINGLE]) for i in range(len(words) - 2)])
        candidates: list[int] = sorted(self._index.query(hashed))
        for candidate in candidates[:_MAX_CANDIDATES]:
            if self._hashes[candidate].jaccard(hashed) >= self._threshold:
                return candidate
        if (
            len(candidates) < _MAX_CANDIDATES
        ):  # of many similar texts only the first ones are indexed
            self._hashes[number] = hashed
            self._index.insert(number, hashed)
        return None
