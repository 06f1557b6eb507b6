"""Files by path: in a folder, in S3, in memory, or wherever opendal can keep them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.blobs.config import BlobConfig
    from lexigram.blobs.content import ContentStore
    from lexigram.blobs.module import BlobModule
    from lexigram.blobs.provider import BlobProvider
    from lexigram.blobs.store import BlobStore
    from lexigram.contracts.data.blobs import BlobStoreProtocol

    # Type checkers prove here that the class satisfies its contract.
    _store: type[BlobStoreProtocol] = BlobStore
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.blobs.config": ["BlobConfig"],
            "lexigram.blobs.content": ["ContentStore"],
            "lexigram.blobs.module": ["BlobModule"],
            "lexigram.blobs.provider": ["BlobProvider"],
            "lexigram.blobs.store": ["BlobStore"],
        },
    )

__all__ = ["BlobConfig", "BlobModule", "BlobProvider", "BlobStore", "ContentStore"]
