"""Blobs as a module: ``BlobModule.configure(...)`` once at the root."""

from __future__ import annotations

from lexigram.blobs.config import BlobConfig
from lexigram.blobs.content import ContentStore
from lexigram.blobs.provider import BlobProvider
from lexigram.blobs.store import BlobStore
from lexigram.contracts.data.blobs import BlobStoreProtocol
from lexigram.di import DynamicModule, Module, module

_EXPORTS = (BlobConfig, BlobStore, BlobStoreProtocol, ContentStore)


@module(providers=[BlobProvider], exports=_EXPORTS, is_global=True)
class BlobModule(Module):
    """The blob store for every module; the bare class reads section ``blobs``."""

    @classmethod
    def configure(cls, config: BlobConfig | None = None) -> DynamicModule:
        """With an explicit configuration, or with section ``blobs`` when None."""
        return DynamicModule(
            module=cls, providers=[BlobProvider(config)], exports=_EXPORTS, is_global=True
        )

    @classmethod
    def stub(cls, config: BlobConfig | None = None) -> DynamicModule:
        """For tests: no file or variable is read, and blobs are kept in memory by default."""
        return cls.configure(BlobConfig(scheme="memory") if config is None else config)
