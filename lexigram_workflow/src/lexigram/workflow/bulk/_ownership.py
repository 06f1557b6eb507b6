"""One process at a time works on a bulk operation: claim it, keep it, stop when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lexigram.contracts.workflow.bulk import (
    BulkCheckpointStoreProtocol,
    LeasingBulkCheckpointStoreProtocol,
)
from lexigram.contracts.workflow.errors import BulkOperationBusyError
from lexigram.leasing import lease_token
from lexigram.workflow._leases import give_back, until_lost


class Unleased:
    """A store that knows no leases: its user must see to it that an operation runs once at a time."""

    async def claim(self, *, take_over: bool) -> None:
        """Nothing to claim."""

    def keep(self, lost: Callable[[BulkOperationBusyError], None]) -> None:
        """Nothing to keep."""

    async def release(self) -> None:
        """Nothing to give back."""


class Leased(Unleased):
    """A store that lends operations: renewed from ``keep`` to ``release``."""

    def __init__(
        self, store: LeasingBulkCheckpointStoreProtocol, operation_id: str, lease: float
    ) -> None:
        self._store = store
        self._id = operation_id
        self._lease = lease
        self._owner = lease_token()
        self._renewer: asyncio.Task[None] | None = None

    async def claim(self, *, take_over: bool) -> None:
        """Claim it. Raises BulkOperationBusyError while another process has it."""
        await self._store.claim(self._id, self._owner, self._lease, take_over=take_over)

    def keep(self, lost: Callable[[BulkOperationBusyError], None]) -> None:
        """Renew it in a task; ``lost`` is called when another process may have it."""

        async def renewing() -> None:
            await until_lost(
                f"bulk operation {self._id}",
                lambda: self._store.renew(self._id, self._owner, self._lease),
                self._lease,
            )
            lost(BulkOperationBusyError(self._id))

        self._renewer = asyncio.create_task(renewing())

    async def release(self) -> None:
        """Give it back; the next run begins at once."""
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.wait([self._renewer])
        await give_back(
            f"bulk operation {self._id}", lambda: self._store.release(self._id, self._owner)
        )


def ownership(store: BulkCheckpointStoreProtocol, operation_id: str, lease: float) -> Unleased:
    """The kind that fits the store."""
    if isinstance(store, LeasingBulkCheckpointStoreProtocol):
        return Leased(store, operation_id, lease)
    return Unleased()
