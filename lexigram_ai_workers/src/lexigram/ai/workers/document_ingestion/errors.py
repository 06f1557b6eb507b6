"""Why a document cannot be ingested: one class per cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lexigram.ai.workers.errors import WorkerError
from lexigram.contracts.ai.errors import RAGError
from lexigram.contracts.workflow.errors import StepRefusedError


class IngestionInputError(WorkerError, RAGError, StepRefusedError):
    """A document that can never be ingested as it is; trying again does not help."""

    code = "LEX_ERR_AIWORK_040"

    def __init__(self, message: str = "the document cannot be ingested", **kwargs: Any) -> None:
        super().__init__(message, **kwargs)


class DocumentOutsideRootError(IngestionInputError, PermissionError):
    """The file, its links followed, is in none of the folders that may be read."""

    code = "LEX_ERR_AIWORK_041"

    def __init__(self, path: str, target: str, roots: Sequence[str], **kwargs: Any) -> None:
        kwargs.setdefault("hint", "move it into an allowed folder, or add its folder to them")
        led = f" (it leads to {target})" if target != path else ""
        super().__init__(
            f"Access denied: {path}{led} is outside of {', '.join(roots)}",
            details={"path": path, "target": target, "allowed_roots": list(roots)},
            **kwargs,
        )


class DocumentMissingError(IngestionInputError, FileNotFoundError):
    """There is no such file."""

    code = "LEX_ERR_AIWORK_042"

    def __init__(self, path: str, **kwargs: Any) -> None:
        super().__init__(f"there is no file {path}", details={"path": path}, **kwargs)


class DocumentUnreadableError(IngestionInputError, PermissionError):
    """The file is there and cannot be read: no permission, no plain file, a broken disk."""

    code = "LEX_ERR_AIWORK_043"

    def __init__(self, path: str, why: str, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "it must be a plain file that this process may read")
        super().__init__(f"{path} cannot be read: {why}", details={"path": path}, **kwargs)


class DocumentEmptyError(IngestionInputError, ValueError):
    """The document has no bytes."""

    code = "LEX_ERR_AIWORK_044"

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(f"{name} is empty (0 bytes)", details={"document": name}, **kwargs)


class DocumentTooLargeError(IngestionInputError, ValueError):
    """The document has more bytes, packed or unpacked, than allowed."""

    code = "LEX_ERR_AIWORK_045"

    def __init__(self, name: str, size: int, limit: int, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "split it, or raise ai_workers.ingestion.max_bytes")
        super().__init__(
            f"{name} has {size:,} bytes, {limit:,} are allowed",
            details={"document": name, "bytes": size, "max_bytes": limit},
            **kwargs,
        )


class TooManyPagesError(IngestionInputError, ValueError):
    """The document has more pages than allowed."""

    code = "LEX_ERR_AIWORK_046"

    def __init__(self, name: str, pages: int, limit: int, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "split it, or raise ai_workers.ingestion.max_pages")
        super().__init__(
            f"{name} has {pages} pages, {limit} are allowed",
            details={"document": name, "pages": pages, "max_pages": limit},
            **kwargs,
        )


class UnsupportedDocumentError(IngestionInputError, ValueError):
    """No parser knows this type of document."""

    code = "LEX_ERR_AIWORK_047"

    def __init__(self, name: str, kind: str, supported: Sequence[str], **kwargs: Any) -> None:
        kwargs.setdefault(
            "hint",
            "leave it out, or register a parser for it: UniversalDocumentParser.register(...)",
        )
        super().__init__(
            f"Unsupported file type {kind!r}. Supported types: {', '.join(supported)}",
            details={"document": name, "type": kind},
            **kwargs,
        )


class DocumentTypeMismatchError(IngestionInputError, ValueError):
    """The content is something else than the name or the MIME type says."""

    code = "LEX_ERR_AIWORK_048"

    def __init__(self, name: str, said: str, found: str, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "give it the extension of what it is")
        super().__init__(
            f"{name} says it is {said}, but its content is {found}",
            details={"document": name, "said": said, "found": found},
            **kwargs,
        )


class DocumentBrokenError(IngestionInputError, ValueError):
    """The document is cut off or damaged."""

    code = "LEX_ERR_AIWORK_049"

    def __init__(self, name: str, why: str, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "get the file again, or repair it with the program it is from")
        super().__init__(f"{name} is broken: {why}", details={"document": name}, **kwargs)


class DocumentEncryptedError(IngestionInputError, ValueError):
    """The document can be read with a password only."""

    code = "LEX_ERR_AIWORK_050"

    def __init__(self, name: str, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "save it without a password")
        super().__init__(f"{name} needs a password", details={"document": name}, **kwargs)


class DocumentBinaryError(IngestionInputError, ValueError):
    """Text was expected, and the content is binary."""

    code = "LEX_ERR_AIWORK_051"

    def __init__(self, name: str, found: str, **kwargs: Any) -> None:
        super().__init__(
            f"{name} is not text: {found}", details={"document": name, "found": found}, **kwargs
        )


class DocumentCharsetError(IngestionInputError, UnicodeError):
    """The text is in none of the charsets that are tried."""

    code = "LEX_ERR_AIWORK_052"

    def __init__(self, name: str, tried: Sequence[str], position: int, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "save it as UTF-8")
        super().__init__(
            f"{name} is not text in {', '.join(tried)}: byte {position} has no meaning there",
            details={"document": name, "tried": list(tried), "position": position},
            **kwargs,
        )


class DocumentWithoutTextError(IngestionInputError, ValueError):
    """The document can be read and has no text: pictures of pages, or nothing at all."""

    code = "LEX_ERR_AIWORK_053"

    def __init__(self, name: str, scanned: Sequence[int] = (), **kwargs: Any) -> None:
        if scanned:
            kwargs.setdefault("hint", "parse it with a Docling server: ingestion.docling_url")
        what = f"{len(scanned)} scanned pages and no text" if scanned else "no text"
        super().__init__(
            f"{name} has {what}",
            details={"document": name, "pages_needing_ocr": list(scanned)},
            **kwargs,
        )


class ParserExtraMissingError(IngestionInputError, ImportError):
    """The parser of this type needs a library of an extra that is not installed."""

    code = "LEX_ERR_AIWORK_054"

    def __init__(self, kind: str, extra: str, **kwargs: Any) -> None:
        kwargs.setdefault("hint", f"pip install 'lexigram-ai-workers[{extra}]'")
        super().__init__(
            f"reading {kind} needs the extra {extra!r}, which is not installed",
            details={"type": kind, "extra": extra},
            **kwargs,
        )


class UnknownParserError(IngestionInputError, LookupError):
    """No parser is registered under this name."""

    code = "LEX_ERR_AIWORK_055"

    def __init__(self, name: str, known: Sequence[str], **kwargs: Any) -> None:
        kwargs.setdefault("hint", f"registered are: {', '.join(known)}")
        super().__init__(f"there is no parser {name!r}", details={"parser": name}, **kwargs)


class ChunkingConfigError(IngestionInputError, ValueError):
    """A setting of chunking is unknown or makes no sense."""

    code = "LEX_ERR_AIWORK_056"


class ParserUnavailableError(WorkerError, RAGError, ConnectionError):
    """The Docling server does not answer, or is overloaded; another attempt may work."""

    code = "LEX_ERR_AIWORK_057"


class ModelNotBoundError(WorkerError, StepRefusedError, LookupError):
    """A step asks for vectors of a model that the application does not have."""

    code = "LEX_ERR_AIWORK_058"

    def __init__(self, asked: str, bound: str, **kwargs: Any) -> None:
        kwargs.setdefault(
            "hint", f"set ai_workers.embeddings to {asked!r}, or leave 'model' out of the step"
        )
        super().__init__(
            f"the step asks for the model {asked!r}, but the application has {bound!r}",
            details={"asked": asked, "bound": bound},
            **kwargs,
        )


class IngestionQueueError(WorkerError, RuntimeError):
    """The queue did not accept an ingestion job."""

    code = "LEX_ERR_AIWORK_059"
