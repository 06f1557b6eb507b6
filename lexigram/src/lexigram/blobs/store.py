"""Blobs on opendal: written whole or not at all, read and written in pieces, checked by hash."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import anyio
from anyio import to_thread

from lexigram.blobs.config import BlobConfig
from lexigram.blobs.paths import UPLOADS, Folder, check_path, check_prefix, path_error
from lexigram.blobs.service import make_operator
from lexigram.contracts.data.blobs import (
    BlobCorruptError,
    BlobError,
    BlobInfo,
    BlobNotFoundError,
)

if TYPE_CHECKING:
    from opendal import AsyncOperator

# Pieces a reader gets; enough for the disk to be busy, little beside the rest of a process.
READ_SIZE: Final = 1024 * 1024
# Hashing this much takes longer than going to a thread for it (about 60 µs).
_HASH_INLINE: Final = 64 * 1024
_LISTED_AT_ONCE: Final = 256


class BlobStore:
    """Implements ``BlobStoreProtocol`` on any service of opendal; made by ``await open(...)``.

    Where the service can rename (``fs``), a blob is written under ``.uploads/``, flushed to the
    disk and moved into place; where it cannot (``s3``, ``memory``), an object appears when the
    last byte is there. What a killed writer left under ``.uploads/`` is removed by ``sweep``.
    """

    def __init__(self, operator: AsyncOperator, config: BlobConfig, folder: Folder | None) -> None:
        self.config = config
        self._operator = operator
        self._folder = folder  # where links have to be looked at
        self._renames = operator.capability().rename

    @classmethod
    async def open(cls, config: BlobConfig | None = None) -> BlobStore:
        """The store that the configuration describes; a wrong one raises ConfigurationError."""
        chosen = config if config is not None else BlobConfig()

        def make() -> BlobStore:
            operator = make_operator(chosen)
            root = chosen.options.get("root", chosen.root)
            return cls(operator, chosen, Folder(root) if chosen.scheme == "fs" else None)

        return await to_thread.run_sync(make)

    async def upload(self, path: str, data: bytes, content_type: str | None = None) -> str:
        """Write the bytes, replacing what was there."""
        await self._check(path)
        with _translate_errors("written", path):
            if not self._renames:
                await self._operator.write(path, data, **_content_type_option(content_type))
                return path
            temporary = _temporary()
            async with _remove_on_failure(self._operator, temporary):
                await self._operator.write(temporary, data)
                await self._operator.rename(temporary, path)
        return path

    async def upload_stream(
        self, path: str, chunks: AsyncIterable[bytes], content_type: str | None = None
    ) -> str:
        """The same from pieces; an exception in ``chunks`` leaves the old blob untouched."""
        await self._check(path)
        if not self._renames:
            await self._pour(path, path, chunks, content_type)
            return path
        temporary = _temporary()
        async with _remove_on_failure(self._operator, temporary):
            await self._pour(temporary, path, chunks, None)
            with _translate_errors("written", path):
                await self._operator.rename(temporary, path)
        return path

    async def download(self, path: str, *, sha256: str | None = None) -> bytes:
        """The bytes, with the hash where one is given."""
        await self._check(path)
        with _translate_errors("read", path):
            data = await self._operator.read(path)
        if sha256 is not None:
            hasher = hashlib.sha256()
            await update_hash(hasher, data)
            _compare(path, sha256, hasher.hexdigest())
        return data

    async def download_stream(
        self, path: str, *, sha256: str | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes in chunks; a wrong hash raises after the last one."""
        await self._check(path)
        hasher = hashlib.sha256() if sha256 is not None else None
        with _translate_errors("read", path):
            file = await self._operator.open(path, "rb")
        try:
            while piece := await _read(file, path):
                if hasher is not None:
                    await update_hash(hasher, piece)
                yield piece
        finally:
            with anyio.CancelScope(shield=True):
                await file.close()
        if sha256 is not None and hasher is not None:
            _compare(path, sha256, hasher.hexdigest())

    async def stat(self, path: str) -> BlobInfo | None:
        """What is known about the blob, or None when there is none."""
        await self._check(path)
        try:
            with _translate_errors("looked at", path):
                found = await self._operator.stat(path)
        except BlobNotFoundError:
            return None
        return _info(path, found) if found.is_file else None

    async def exists(self, path: str) -> bool:
        """True when there is a blob; may already be stale."""
        return await self.stat(path) is not None

    async def delete(self, path: str) -> bool:
        """Remove the blob; False when there was none."""
        if await self.stat(path) is None:
            return False
        try:
            with _translate_errors("removed", path):
                await self._operator.delete(path)
        except BlobNotFoundError:
            return False  # removed by another process
        return True

    async def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        """The blobs whose path starts with the prefix, in no order."""
        check_prefix(prefix)
        if self._folder is not None:
            await self._folder.check(prefix.rpartition("/")[0])
        batch: list[BlobInfo] = []
        async for info in self._entries(prefix):
            batch.append(info)
            if len(batch) == _LISTED_AT_ONCE:
                for kept in await self._inside(batch):
                    yield kept
                batch = []
        for kept in await self._inside(batch):
            yield kept

    async def sweep(self) -> int:
        """Remove what writers left that died ``stale_upload_after`` seconds ago; how many."""
        if not self._renames:
            return 0
        removed = 0
        with _translate_errors("swept", UPLOADS):
            async for entry in await self._operator.list(f"{UPLOADS}/", recursive=True):
                if entry.metadata.is_file and self._is_stale(entry.metadata.last_modified):
                    await self._operator.delete(entry.path)
                    removed += 1
        return removed

    async def ping(self) -> None:
        """Raise BlobError when the service does not answer."""
        with _translate_errors("asked", self.config.root):
            await self._operator.check()

    async def _check(self, path: str) -> None:
        check_path(path)
        if self._folder is not None:
            await self._folder.check(path)

    async def _pour(
        self, target: str, path: str, chunks: AsyncIterable[bytes], content_type: str | None
    ) -> None:
        """Write all pieces. A file that is not closed is never committed: no ``async with``.

        opendal's own ``__aexit__`` commits what there is, also when the block raised.
        """
        with _translate_errors("written", path):
            options = {"chunk": self.config.chunk_size, **_content_type_option(content_type)}
            file = await self._operator.open(target, "wb", **options)
        try:
            async for piece in chunks:
                with _translate_errors("written", path):
                    await file.write(piece)
            with _translate_errors("written", path):
                await file.close()
        finally:
            # The traceback of an error keeps our variables, and with them the file open: what was
            # written of it would take room on the disk until the next garbage collection.
            del file

    async def _entries(self, prefix: str) -> AsyncIterator[BlobInfo]:
        with _translate_errors("listed", prefix):
            async for entry in await self._operator.list(prefix, recursive=True):
                path = entry.path
                if entry.metadata.is_file and not path.startswith(f"{UPLOADS}/"):
                    yield _info(path, entry.metadata)

    async def _inside(self, batch: Sequence[BlobInfo]) -> Sequence[BlobInfo]:
        if self._folder is None or not batch:
            return batch
        kept = await self._folder.keep([info.path for info in batch])
        return [info for info, inside in zip(batch, kept, strict=True) if inside]

    def _is_stale(self, modified: datetime | None) -> bool:
        if modified is None:
            return False
        return (datetime.now(UTC) - modified).total_seconds() > self.config.stale_upload_after


async def update_hash(hasher: Any, data: bytes) -> None:
    """Add data to a hash; much of it in a thread, so that the loop goes on."""
    if len(data) <= _HASH_INLINE:
        hasher.update(data)
    else:
        await to_thread.run_sync(hasher.update, data)


@asynccontextmanager
async def _remove_on_failure(operator: AsyncOperator, temporary: str) -> AsyncIterator[None]:
    """Remove the temporary file when the block fails or is cancelled."""
    try:
        yield
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            try:
                await operator.delete(temporary)
            except Exception as failure:  # noqa: BLE001 - the reason of the failure is raised
                error.add_note(f"{temporary} stays until it is swept: {failure}")
        raise


def _temporary() -> str:
    return f"{UPLOADS}/{uuid4().hex}"


def _content_type_option(content_type: str | None) -> dict[str, Any]:
    return {} if content_type is None else {"content_type": content_type}


async def _read(file: Any, path: str) -> bytes:
    with _translate_errors("read", path):
        return bytes(await file.read(READ_SIZE))


def _info(path: str, metadata: Any) -> BlobInfo:
    return BlobInfo(
        path=path,
        size=metadata.content_length,
        modified_at=metadata.last_modified,
        content_type=metadata.content_type,
    )


def _compare(path: str, wanted: str, found: str) -> None:
    if wanted.lower() != found:
        raise BlobCorruptError(
            f"{path} does not have the hash it should have",
            details={"path": path, "sha256": wanted, "found": found},
            hint="write the blob again from its source; what is stored was damaged or replaced",
        )


def _not_found(path: str) -> BlobNotFoundError:
    return BlobNotFoundError(f"there is no blob {path}", details={"path": path})


@contextmanager
def _translate_errors(done: str, path: str) -> Iterator[None]:
    """Every error of opendal as one of ours; its classes have no base in common."""
    try:
        yield
    except BlobError:
        raise
    except Exception as error:
        name = _name_of(error)
        if name is None:
            raise
        if name in _IN_THE_WAY and done == "written":
            raise path_error(path, "a folder or a blob is in its way") from error
        if name in _NOTHING_THERE:
            raise _not_found(path) from error
        raise _blob_error(done, path, error) from error


# What opendal says when the last name of a path is a folder, or one before it is a blob.
_IN_THE_WAY: Final = frozenset({"IsADirectory", "NotADirectory", "AlreadyExists"})
_NOTHING_THERE: Final = frozenset({"NotFound", "IsADirectory", "NotADirectory"})


def _name_of(error: Exception) -> str | None:
    """The kind of an opendal error; None for any other error."""
    if not isinstance(error, OSError) and not type(error).__module__.startswith("opendal"):
        return None
    text = str(error).partition("\n")[0]
    if "is a directory" in text:
        return "IsADirectory"
    if "not a directory" in text:
        return "NotADirectory"
    # An open file of opendal raises a plain OSError that begins with the kind.
    return text.partition(" ")[0] if isinstance(error, OSError) else type(error).__name__


def _blob_error(done: str, path: str, error: Exception) -> BlobError:
    # The rest of an opendal text is context and a backtrace of its own.
    reason = str(error).partition("\n")[0]
    return BlobError(
        f"{path or 'the store'} could not be {done}: {reason}",
        details={"path": path, "kind": type(error).__name__},
    )
