"""Bodies that are too large for a message: in the blob store of the application."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from uuid import uuid4

from lexigram.contracts.data.blobs import (
    BlobCorruptError,
    BlobError,
    BlobNotFoundError,
    BlobStoreProtocol,
)
from lexigram.contracts.queue import BusMessage
from lexigram.queue.backends.sqs._wire import BLOB, Content, Received, reference
from lexigram.queue.runtime.envelope import SHOWN

_log = logging.getLogger(__name__)


class Bodies:
    """The bodies of one driver; ``blobs`` is None where the application has no blob store."""

    def __init__(self, prefix: str, blobs: BlobStoreProtocol | None) -> None:
        self._prefix, self.blobs = prefix, blobs

    async def store(self, queue: str, message: BusMessage) -> Content:
        assert self.blobs is not None
        path = f"{self.folder(queue)}{uuid4().hex}"
        await self.blobs.upload(path, message.payload)
        return reference(path, message.payload)

    def folder(self, queue: str) -> str:
        return f"queue/{queue}/"  # of one queue: what a group has settled, no other needs

    async def read(self, one: Received) -> tuple[bytes, str | None]:
        """The body, and why it is not to be had: then the reference is in its place."""
        where = one.blob
        if where is None:
            return one.payload(), None
        path, digest = where
        if not self._is_ours(path):
            return one.payload(), f"{BLOB} {path[:SHOWN]!a}"
        if self.blobs is None:
            return one.payload(), "the body is in a blob store, and BlobModule is not added"
        try:
            return one.payload(await self.blobs.download(path, sha256=digest)), None
        except (BlobNotFoundError, BlobCorruptError) as error:
            _log.error("the body of message %s is lost: %s", one.id, error)
            return one.payload(), f"the body in the blob store: {error.message}"

    def _is_ours(self, path: str) -> bool:
        """Whether a path was made by this driver: others may name any file of the application."""
        name = rf"queue/{re.escape(self._prefix)}-[A-Za-z0-9_.-]+/[0-9a-f]{{32}}"
        return re.fullmatch(name, path) is not None

    async def forget(self, raws: Sequence[Received]) -> None:
        """Delete what settled messages have in the blob store; a failure leaves it there."""
        for raw in raws:
            where = raw.blob
            if where is not None and self.blobs is not None and self._is_ours(where[0]):
                try:
                    await self.blobs.delete(where[0])
                except BlobError as error:
                    _log.warning("the body %s of a settled message is left: %s", where[0], error)

    async def drop(self, queue: str) -> None:
        """Delete all that the messages of a queue have there."""
        if self.blobs is not None:
            paths = [info.path async for info in self.blobs.list(self.folder(queue))]
            for path in paths:
                await self.blobs.delete(path)
