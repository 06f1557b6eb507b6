"""Document ingestion: parse, chunk, embed and store documents."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.ai.workers.document_ingestion.chunker import DocumentChunker
    from lexigram.ai.workers.document_ingestion.config import ChunkingConfig, IngestionConfig
    from lexigram.ai.workers.document_ingestion.errors import (
        ChunkingConfigError,
        DocumentBinaryError,
        DocumentBrokenError,
        DocumentCharsetError,
        DocumentEmptyError,
        DocumentEncryptedError,
        DocumentMemoryError,
        DocumentMissingError,
        DocumentNestedError,
        DocumentOutsideRootError,
        DocumentTimeoutError,
        DocumentTooLargeError,
        DocumentTypeMismatchError,
        DocumentUnreadableError,
        DocumentWithoutTextError,
        IngestionInputError,
        IngestionQueueError,
        ModelNotBoundError,
        ParserCrashedError,
        ParserExtraMissingError,
        ParserUnavailableError,
        TooManyPagesError,
        UnknownParserError,
        UnsupportedDocumentError,
    )
    from lexigram.ai.workers.document_ingestion.parser import (
        DocumentLoader,
        DocumentParser,
        ParserRegistry,
        UniversalDocumentParser,
    )
    from lexigram.ai.workers.document_ingestion.processor import DocumentProcessor
    from lexigram.ai.workers.document_ingestion.progress import ProgressTracker
    from lexigram.ai.workers.document_ingestion.types import (
        Block,
        BlockKind,
        ChunkingConfigDict,
        Document,
        DocumentChunk,
        DocumentIngestionJob,
        IngestionProgress,
        IngestionResult,
        IngestionStatus,
    )
    from lexigram.ai.workers.document_ingestion.worker import DocumentIngestionWorker
    from lexigram.contracts.ai.rag import ChunkerProtocol, ChunkProtocol, DocumentProtocol
    from lexigram.contracts.infra.tasks.protocols import TaskWorkerProtocol

    # Type checkers prove here that each class satisfies its contract.
    _parser: type[DocumentParser] = UniversalDocumentParser
    _chunker: type[ChunkerProtocol] = DocumentChunker
    _chunk: type[ChunkProtocol] = DocumentChunk
    _document: type[DocumentProtocol] = Document
    _worker: type[TaskWorkerProtocol] = DocumentIngestionWorker
else:
    from lexigram.contracts._lazy import lazy_exports

    _HERE = "lexigram.ai.workers.document_ingestion"
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            f"{_HERE}.chunker": ["DocumentChunker"],
            f"{_HERE}.config": ["ChunkingConfig", "IngestionConfig"],
            f"{_HERE}.errors": [
                "ChunkingConfigError",
                "DocumentBinaryError",
                "DocumentBrokenError",
                "DocumentCharsetError",
                "DocumentEmptyError",
                "DocumentEncryptedError",
                "DocumentMemoryError",
                "DocumentMissingError",
                "DocumentNestedError",
                "DocumentOutsideRootError",
                "DocumentTimeoutError",
                "DocumentTooLargeError",
                "DocumentTypeMismatchError",
                "DocumentUnreadableError",
                "DocumentWithoutTextError",
                "IngestionInputError",
                "IngestionQueueError",
                "ModelNotBoundError",
                "ParserCrashedError",
                "ParserExtraMissingError",
                "ParserUnavailableError",
                "TooManyPagesError",
                "UnknownParserError",
                "UnsupportedDocumentError",
            ],
            f"{_HERE}.parser": [
                "DocumentLoader",
                "DocumentParser",
                "ParserRegistry",
                "UniversalDocumentParser",
            ],
            f"{_HERE}.processor": ["DocumentProcessor"],
            f"{_HERE}.progress": ["ProgressTracker"],
            f"{_HERE}.types": [
                "Block",
                "BlockKind",
                "ChunkingConfigDict",
                "Document",
                "DocumentChunk",
                "DocumentIngestionJob",
                "IngestionProgress",
                "IngestionResult",
                "IngestionStatus",
            ],
            f"{_HERE}.worker": ["DocumentIngestionWorker"],
        },
    )

__all__ = [
    "Block",
    "BlockKind",
    "ChunkingConfig",
    "ChunkingConfigDict",
    "ChunkingConfigError",
    "Document",
    "DocumentBinaryError",
    "DocumentBrokenError",
    "DocumentCharsetError",
    "DocumentChunk",
    "DocumentChunker",
    "DocumentEmptyError",
    "DocumentEncryptedError",
    "DocumentIngestionJob",
    "DocumentIngestionWorker",
    "DocumentLoader",
    "DocumentMemoryError",
    "DocumentMissingError",
    "DocumentNestedError",
    "DocumentOutsideRootError",
    "DocumentParser",
    "DocumentProcessor",
    "DocumentTimeoutError",
    "DocumentTooLargeError",
    "DocumentTypeMismatchError",
    "DocumentUnreadableError",
    "DocumentWithoutTextError",
    "IngestionConfig",
    "IngestionInputError",
    "IngestionProgress",
    "IngestionQueueError",
    "IngestionResult",
    "IngestionStatus",
    "ModelNotBoundError",
    "ParserCrashedError",
    "ParserExtraMissingError",
    "ParserRegistry",
    "ParserUnavailableError",
    "ProgressTracker",
    "TooManyPagesError",
    "UniversalDocumentParser",
    "UnknownParserError",
    "UnsupportedDocumentError",
]
