"""The settings of document ingestion: part ``ingestion`` of section ``ai_workers``."""

from __future__ import annotations

from typing import Literal

from attrs import Attribute, field, frozen
from attrs.validators import and_, ge, gt, in_, le

from lexigram.config import doc, secret

UNITS = ("tokens", "characters")
NEAR_DUPLICATES = ("off", "mark", "skip")


def _smaller_than_size(config: ChunkingConfig, _: Attribute[int], value: int) -> None:
    if not 0 <= value < config.chunk_size:
        raise ValueError(
            f"chunk_overlap is {value}, but must be from 0 to less than chunk_size, "
            f"which is {config.chunk_size}"
        )


def _not_empty(_: ChunkingConfig, __: Attribute[str], value: str | None) -> None:
    if value == "":
        raise ValueError("separator is empty; omit it to split by sentences and words only")


@frozen(kw_only=True)
class ChunkingConfig:
    """Settings of chunking."""

    chunk_size: int = field(
        default=512, validator=ge(1), metadata=doc("Maximum size of a chunk, in `unit`.")
    )
    chunk_overlap: int = field(
        default=50,
        validator=_smaller_than_size,
        metadata=doc("Overlap with the previous chunk; counts towards chunk_size."),
    )
    separator: str | None = field(
        default="\n\n",
        validator=_not_empty,
        metadata=doc("Preferred place to split. No value: at sentences and words only."),
    )
    unit: Literal["tokens", "characters"] = field(
        default="tokens",
        validator=in_(UNITS),
        metadata=doc("Unit of chunk_size and chunk_overlap."),
    )
    tokenizer: str | None = field(
        default=None,
        metadata=doc(
            "Path of a tokenizer.json for counting tokens. No value: an estimate by word pieces of "
            "up to five characters, accurate to a few percent for English."
        ),
    )
    near_duplicates: Literal["off", "mark", "skip"] = field(
        default="mark",
        validator=in_(NEAR_DUPLICATES),
        metadata=doc(
            "Near-duplicate chunks of a document: keep (off), link (mark) or drop (skip)."
        ),
    )
    duplicate_threshold: float = field(
        default=0.9,
        validator=and_(gt(0.0), le(1.0)),
        metadata=doc("Share of common word triples from which two chunks are near-duplicates."),
    )


@frozen(kw_only=True)
class IngestionConfig:
    """Settings of reading, parsing and chunking."""

    allowed_roots: tuple[str, ...] = field(
        default=(),
        metadata=doc("Folders that files may be read from, after resolving links. Empty: all."),
    )
    max_bytes: int = field(
        default=50 * 1024 * 1024,
        validator=ge(1),
        metadata=doc("Maximum size of a document in bytes; checked before reading."),
    )
    max_pages: int = field(
        default=5_000, validator=ge(1), metadata=doc("Maximum number of pages or slides.")
    )
    process_timeout: float = field(
        default=300.0,
        validator=gt(0),
        metadata=doc("Timeout of parsing or chunking in a separate process, in seconds."),
    )
    process_memory: int = field(
        default=1024 * 1024 * 1024,
        validator=ge(64 * 1024 * 1024),
        metadata=doc("Memory limit of such a process, in bytes (on Linux)."),
    )
    chunking: ChunkingConfig = field(
        factory=ChunkingConfig, metadata=doc("Default chunking settings of jobs.")
    )
    docling_url: str | None = field(
        default=None,
        metadata=doc(
            "URL of a Docling server, the parser named docling; it also reads scanned pages."
        ),
    )
    docling_api_key: str | None = field(
        default=None, repr=False, metadata=secret("The key of the Docling server.")
    )
    docling_timeout: float = field(
        default=600.0, validator=gt(0), metadata=doc("Timeout of one document, in seconds.")
    )
