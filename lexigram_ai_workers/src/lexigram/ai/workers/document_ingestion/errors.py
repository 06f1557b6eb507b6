"""Errors of document ingestion: one class per cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lexigram.ai.workers.errors import WorkerError
from lexigram.contracts.ai.errors import RAGError
from lexigram.contracts.workflow.errors import StepRefusedError


class IngestionInputError(WorkerError, RAGError, StepRefusedError):
    """A document that cannot be ingested; a retry fails the same way."""

    code = "LEX_ERR_AIWORK_040"

    def __init__(self, message: str = "the document cannot be ingested", **kwargs: Any) -> None:
        super().__init__(message, **kwargs)


class DocumentOutsideRootError(IngestionInputError, PermissionError):
    """The file, after resolving links, is outside the allowed folders."""

    code = "LEX_ERR_AIWORK_041"

    def __init__(self, path: str, target: str, roots: Sequence[str], **kwargs: Any) -> None:
        kwargs.setdefault(
            "hint",
            "move it into an allowed folder, or add its folder to ai_workers.ingestion.allowed_roots",
        )
        resolved = f" (a link to {target})" if target != path else ""
        super().__init__(
            f"Access denied: {path}{resolved} is outside {', '.join(roots)}",
            details={"path": path, "target": target, "allowed_roots": list(roots)},
            **kwargs,
        )


class DocumentMissingError(IngestionInputError, FileNotFoundError):
    """The file does not exist."""

    code = "LEX_ERR_AIWORK_042"

    def __init__(self, path: str, **kwargs: Any) -> None:
        super().__init__(f"file not found: {path}", details={"path": path}, **kwargs)


class DocumentUnreadableError(IngestionInputError, PermissionError):
    """The file cannot be read: no permission, not a regular file, or a disk error."""

    code = "LEX_ERR_AIWORK_043"

    def __init__(self, path: str, reason: str, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "make it a regular file that this process may read")
        super().__init__(f"cannot read {path}: {reason}", details={"path": path}, **kwargs)


class DocumentEmptyError(IngestionInputError, ValueError):
    """The document has no bytes."""

    code = "LEX_ERR_AIWORK_044"

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(f"{name} is empty (0 bytes)", details={"document": name}, **kwargs)


class DocumentTooLargeError(IngestionInputError, ValueError):
    """The document is larger, packed or unpacked, than allowed."""

    code = "LEX_ERR_AIWORK_045"

    def __init__(self, name: str, size: int, limit: int, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "split it, or raise ai_workers.ingestion.max_bytes")
        super().__init__(
            f"{name} has {size:,} bytes, the limit is {limit:,}",
            details={"document": name, "bytes": size, "max_bytes": limit},
            **kwargs,
        )


class TooManyPagesError(IngestionInputError, ValueError):
    """The document has more pages than allowed."""

    code = "LEX_ERR_AIWORK_046"

    def __init__(self, name: str, pages: int, limit: int, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "split it, or raise ai_workers.ingestion.max_pages")
        super().__init__(
            f"{name} has {pages} pages, the limit is {limit}",
            details={"document": name, "pages": pages, "max_pages": limit},
            **kwargs,
        )


class UnsupportedDocumentError(IngestionInputError, ValueError):
    """No parser supports this document type."""

    code = "LEX_ERR_AIWORK_047"

    def __init__(self, name: str, kind: str, supported: Sequence[str], **kwargs: Any) -> None:
        kwargs.setdefault(
            "hint",
            "skip the file, or register a parser with UniversalDocumentParser.register(...)",
        )
        super().__init__(
            f"Unsupported file type {kind!r}. Supported types: {', '.join(supported)}",
            details={"document": name, "type": kind},
            **kwargs,
        )


class DocumentTypeMismatchError(IngestionInputError, ValueError):
    """The content does not match the file name or the MIME type."""

    code = "LEX_ERR_AIWORK_048"

    def __init__(self, name: str, declared: str, found: str, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "use the file extension of the actual type")
        super().__init__(
            f"{name} is declared as {declared}, but its content is {found}",
            details={"document": name, "declared": declared, "found": found},
            **kwargs,
        )


class DocumentBrokenError(IngestionInputError, ValueError):
    """The document is truncated or damaged."""

    code = "LEX_ERR_AIWORK_049"

    def __init__(self, name: str, reason: str, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "download the file again, or repair it with its application")
        super().__init__(f"{name} is damaged: {reason}", details={"document": name}, **kwargs)


class DocumentEncryptedError(IngestionInputError, ValueError):
    """The document is protected by a password."""

    code = "LEX_ERR_AIWORK_050"

    def __init__(self, name: str, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "save it without a password")
        super().__init__(f"{name} is password-protected", details={"document": name}, **kwargs)


class DocumentBinaryError(IngestionInputError, ValueError):
    """A text document has binary content."""

    code = "LEX_ERR_AIWORK_051"

    def __init__(self, name: str, found: str, **kwargs: Any) -> None:
        super().__init__(
            f"{name} is not text: {found}", details={"document": name, "found": found}, **kwargs
        )


class DocumentCharsetError(IngestionInputError, UnicodeError):
    """The text cannot be decoded."""

    code = "LEX_ERR_AIWORK_052"

    def __init__(self, name: str, tried: Sequence[str], position: int, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "save it as UTF-8")
        super().__init__(
            f"{name} cannot be decoded as {', '.join(tried)}: invalid byte at position {position}",
            details={"document": name, "tried": list(tried), "position": position},
            **kwargs,
        )


class DocumentWithoutTextError(IngestionInputError, ValueError):
    """The document has no text: it is empty or has only scanned pages."""

    code = "LEX_ERR_AIWORK_053"

    def __init__(self, name: str, scanned: Sequence[int] = (), **kwargs: Any) -> None:
        if scanned:
            kwargs.setdefault(
                "hint",
                "set ai_workers.ingestion.docling_url to a Docling server, which reads scanned pages",
            )
        what = f"{len(scanned)} scanned pages and no text" if scanned else "no text"
        super().__init__(
            f"{name} has {what}",
            details={"document": name, "pages_needing_ocr": list(scanned)},
            **kwargs,
        )


class ParserExtraMissingError(IngestionInputError, ImportError):
    """The parser needs a library of an extra that is not installed."""

    code = "LEX_ERR_AIWORK_054"

    def __init__(self, kind: str, extra: str, **kwargs: Any) -> None:
        kwargs.setdefault("hint", f"run pip install 'lexigram-ai-workers[{extra}]'")
        super().__init__(
            f"parsing {kind} needs the extra {extra!r}, which is not installed",
            details={"type": kind, "extra": extra},
            **kwargs,
        )


class UnknownParserError(IngestionInputError, LookupError):
    """No parser has this name."""

    code = "LEX_ERR_AIWORK_055"

    def __init__(self, name: str, known: Sequence[str], **kwargs: Any) -> None:
        kwargs.setdefault("hint", f"use one of: {', '.join(known)}")
        super().__init__(f"unknown parser {name!r}", details={"parser": name}, **kwargs)


class ChunkingConfigError(IngestionInputError, ValueError):
    """A chunking setting is unknown or invalid."""

    code = "LEX_ERR_AIWORK_056"


class ParserUnavailableError(WorkerError, RAGError, ConnectionError):
    """The Docling server is unavailable or overloaded; a retry may succeed."""

    code = "LEX_ERR_AIWORK_057"


class ModelNotBoundError(WorkerError, StepRefusedError, LookupError):
    """A step requires a model that the application does not have."""

    code = "LEX_ERR_AIWORK_058"

    def __init__(self, requested: str, bound: str, **kwargs: Any) -> None:
        kwargs.setdefault(
            "hint",
            f"set ai_workers.embeddings to {requested!r}, or remove 'model' from the step parameters",
        )
        super().__init__(
            f"the step requires the model {requested!r}, but the application has {bound!r}",
            details={"requested": requested, "bound": bound},
            **kwargs,
        )


class IngestionQueueError(WorkerError, RuntimeError):
    """The queue did not accept an ingestion job."""

    code = "LEX_ERR_AIWORK_059"


class DocumentNestedError(IngestionInputError, ValueError):
    """The document is nested too deeply."""

    code = "LEX_ERR_AIWORK_060"

    def __init__(self, name: str, what: str, limit: int, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "flatten the document, or skip it")
        super().__init__(
            f"{name} is nested too deeply: more than {limit} {what}",
            details={"document": name, "limit": limit},
            **kwargs,
        )


class DocumentTimeoutError(IngestionInputError, TimeoutError):
    """Parsing or chunking the document took too long."""

    code = "LEX_ERR_AIWORK_061"

    def __init__(self, name: str, seconds: float, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "split it, or raise ai_workers.ingestion.process_timeout")
        super().__init__(
            f"{name} could not be processed within {seconds:g} s",
            details={"document": name, "process_timeout": seconds},
            **kwargs,
        )


class DocumentMemoryError(IngestionInputError, MemoryError):
    """Parsing or chunking the document needed too much memory."""

    code = "LEX_ERR_AIWORK_062"

    def __init__(self, name: str, limit: int, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "split it, or raise ai_workers.ingestion.process_memory")
        super().__init__(
            f"{name} could not be processed within {limit:,} bytes of memory",
            details={"document": name, "process_memory": limit},
            **kwargs,
        )


class ParserCrashedError(WorkerError, RAGError, RuntimeError):
    """The process that parsed the document crashed; a retry may succeed."""

    code = "LEX_ERR_AIWORK_063"

    def __init__(self, name: str, **kwargs: Any) -> None:
        kwargs.setdefault("hint", "if it happens again, the file is damaged: skip it")
        super().__init__(
            f"the process that parsed {name} crashed", details={"document": name}, **kwargs
        )
