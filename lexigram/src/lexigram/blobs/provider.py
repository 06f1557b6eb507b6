"""Registers the blob store, removes what dead writers left, and reports whether it answers."""

from __future__ import annotations

from logging import getLogger

import anyio

from lexigram.blobs.config import BlobConfig
from lexigram.blobs.content import ContentStore
from lexigram.blobs.store import BlobStore
from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.blobs import BlobError, BlobStoreProtocol
from lexigram.di import Provider, ProviderPriority

_log = getLogger(__name__)


class BlobProvider(Provider):
    """Binds ``BlobStoreProtocol``, ``BlobStore`` and ``ContentStore``."""

    name = "blobs"
    priority = ProviderPriority.INFRASTRUCTURE
    config_key = BlobConfig.config_section
    config_model = BlobConfig

    config: BlobConfig

    def __init__(self, config: BlobConfig | None = None) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        self._store: BlobStore | None = None

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind configuration and stores."""
        container.singleton(BlobConfig, self.config)
        container.singleton(BlobStore, factory=self._open)
        container.singleton(BlobStoreProtocol, factory=_as_contract)
        container.singleton(ContentStore, factory=_content)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Open the store, and remove what writers left that were killed long ago."""
        self._store = await container.resolve(BlobStore)
        removed = await self._store.sweep()
        if removed:
            _log.info("%d unfinished uploads of dead writers were removed", removed)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """UNHEALTHY while the store does not answer."""
        problem = await self._problem(timeout)
        return HealthCheckResult(
            component=self.name,
            status=HealthStatus.UNHEALTHY if problem else HealthStatus.HEALTHY,
            message=f"blobs in {self.config.scheme}",
            error=problem,
        )

    async def _problem(self, timeout: float) -> str | None:
        if self._store is None:
            return "the store is not open"
        try:
            with anyio.fail_after(timeout):
                await self._store.ping()
        except (BlobError, TimeoutError) as error:
            return str(error) or f"no answer within {timeout:g} s"
        return None

    async def _open(self) -> BlobStore:
        return await BlobStore.open(self.config)


def _as_contract(store: BlobStore) -> BlobStoreProtocol:
    return store


def _content(store: BlobStoreProtocol) -> ContentStore:
    return ContentStore(store)
