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
        raise ValueError("separator is empty; leave it out to cut by sense alone")


@frozen(kw_only=True)
class ChunkingConfig:
    """How a text is cut into chunks."""

    chunk_size: int = field(
        default=512, validator=ge(1), metadata=doc("The most of a chunk, in the unit below.")
    )
    chunk_overlap: int = field(
        default=50,
        validator=_smaller_than_size,
        metadata=doc("How much of the chunk before is repeated; inside chunk_size."),
    )
    separator: str | None = field(
        default="\n\n",
        validator=_not_empty,
        metadata=doc("Where to cut rather than anywhere else. No value: by sense alone."),
    )
    unit: Literal["tokens", "characters"] = field(
        default="tokens",
        validator=in_(UNITS),
        metadata=doc("What chunk_size and chunk_overlap count."),
    )
    tokenizer: str | None = field(
        default=None,
        metadata=doc(
            "A tokenizer.json to count tokens with. No value: pieces of words of at most five "
            "letters and single marks, within a few percent of what models count in English."
        ),
    )
    near_duplicates: Literal["off", "mark", "skip"] = field(
        default="mark",
        validator=in_(NEAR_DUPLICATES),
        metadata=doc("Chunks nearly equal to an earlier one of the document: keep, link, drop."),
    )
    duplicate_threshold: float = field(
        default=0.9,
        validator=and_(gt(0.0), le(1.0)),
        metadata=doc("From which share of common word triples two chunks are nearly equal."),
    )


@frozen(kw_only=True)
class IngestionConfig:
    """What may be read, how it is parsed and cut."""

    allowed_roots: tuple[str, ...] = field(
        default=(),
        metadata=doc("Folders files may be read from, links followed. None named: all."),
    )
    max_bytes: int = field(
        default=50 * 1024 * 1024,
        validator=ge(1),
        metadata=doc("Bytes of a document; larger ones are refused before they are read."),
    )
    max_pages: int = field(
        default=5_000, validator=ge(1), metadata=doc("Pages or slides of a document.")
    )
    chunking: ChunkingConfig = field(
        factory=ChunkingConfig, metadata=doc("How texts are cut unless a job says otherwise.")
    )
    docling_url: str | None = field(
        default=None,
        metadata=doc("A Docling server, the parser named docling: it reads scanned pages too."),
    )
    docling_api_key: str | None = field(
        default=None, repr=False, metadata=secret("The key of the Docling server.")
    )
    docling_timeout: float = field(
        default=600.0, validator=gt(0), metadata=doc("Seconds one document may take there.")
    )
