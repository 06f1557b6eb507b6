"""One process at a time works on a saga: claim it, keep it, and stop when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

from lexigram.contracts.workflow.errors import SagaBusyError
from lexigram.contracts.workflow.protocols import SagaStoreProtocol
from lexigram.contracts.workflow.sagas import LeasingSagaStoreProtocol
from lexigram.contracts.workflow.types import SagaState
from lexigram.leasing import lease_token
from lexigram.workflow._leases import give_back, until_lost

T = TypeVar("T")

Stored = tuple[SagaState, dict[str, Any]]


class NotKept:
    """A saga without a store: nothing is written, and nobody else can have it."""

    is_kept = False

    async def load(self, *, create: bool, take_over: bool) -> Stored | None:
        """Nothing is stored."""
        return None

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Just do it."""
        return await work()

    async def save(self, state: SagaState, data: dict[str, Any], *, last: bool) -> None:
        """Nothing to do."""


class Kept(NotKept):
    """A saga in a store that knows no leases: its user must see to it that it runs once at a time."""

    is_kept = True

    def __init__(self, store: SagaStoreProtocol, saga_id: str) -> None:
        self._store = store
        self._id = saga_id

    async def load(self, *, create: bool, take_over: bool) -> Stored | None:
        """As it was saved last."""
        return await self._store.load(self._id)

    async def save(self, state: SagaState, data: dict[str, Any], *, last: bool) -> None:
        """Durable when it returns, as far as the store is."""
        await self._store.save(self._id, state, data)


class Leased(NotKept):
    """A saga in a store that lends it: renewed while the work goes on."""

    is_kept = True

    def __init__(self, store: LeasingSagaStoreProtocol, saga_id: str, lease: float) -> None:
        self._store = store
        self._id = saga_id
        self._lease = lease
        self._owner = lease_token()
        self._is_held = False

    async def load(self, *, create: bool, take_over: bool) -> Stored | None:
        """Claim it. Raises SagaBusyError while another process has it."""
        stored = await self._store.claim(
            self._id, self._owner, self._lease, create=create, take_over=take_over
        )
        self._is_held = stored is not None
        return None if stored is None else (stored.state, stored.data)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do it while the lease is renewed; cancelled, and SagaBusyError, when it is lost."""
        scope = anyio.CancelScope()
        renewer = asyncio.create_task(self._keep(scope))
        try:
            with scope:
                return await work()
        finally:
            renewer.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([renewer])
                await self._give_back()
        raise SagaBusyError(self._id)

    async def save(self, state: SagaState, data: dict[str, Any], *, last: bool) -> None:
        """Write it as the holder; the last save gives it back."""
        lease = None if last else self._lease
        await self._store.save_owned(self._id, state, data, self._owner, lease)
        self._is_held = not last

    async def _keep(self, scope: anyio.CancelScope) -> None:
        await until_lost(
            f"saga {self._id}",
            lambda: self._store.renew(self._id, self._owner, self._lease),
            self._lease,
        )
        scope.cancel()

    async def _give_back(self) -> None:
        if self._is_held:
            await give_back(f"saga {self._id}", lambda: self._store.release(self._id, self._owner))


def ownership(store: SagaStoreProtocol | None, saga_id: str, lease: float) -> NotKept:
    """The kind that fits the store."""
    if store is None:
        return NotKept()
    if isinstance(store, LeasingSagaStoreProtocol):
        return Leased(store, saga_id, lease)
    return Kept(store, saga_id)
