"""Where a bulk operation remembers what it finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class BulkCheckpointStoreProtocol(Protocol):
    """Remembers finished batches, append only: a mark costs the same for the first and the last.

    Guaranteed: a mark that returned is seen by later calls as long as the store keeps it, and
    in a durable store it survives a crash. Methods raise when the store fails.
    """

    async def begin(self, operation_id: str, batch_size: int) -> int:
        """Start or go on with an operation; the batch size it was started with."""
        ...

    async def mark(self, operation_id: str, batch_id: int, failed: tuple[int, ...] = ()) -> None:
        """The batch is finished; ``failed`` are places in it that did not succeed.

        A second call replaces the places.
        """
        ...

    async def finished(
        self, operation_id: str, first: int, last: int
    ) -> Mapping[int, tuple[int, ...]]:
        """The finished batches from ``first`` to ``last``, with the places that failed."""
        ...

    async def clear(self, operation_id: str) -> None:
        """Forget the operation; unknown is fine."""
        ...


@runtime_checkable
class LeasingBulkCheckpointStoreProtocol(BulkCheckpointStoreProtocol, Protocol):
    """A store that lends each operation to one owner for a time.

    Guaranteed: at any moment one owner holds a lease. Not guaranteed: that a holder who lost it
    has stopped working; it learns so when it renews. ``mark`` asks nobody: a batch that is
    finished is finished, in any process.
    """

    async def claim(
        self, operation_id: str, owner: str, lease: float, *, take_over: bool = False
    ) -> None:
        """Lend the operation to ``owner`` for ``lease`` seconds; a holder gets it again.

        Raises BulkOperationBusyError while another owner's lease runs, unless ``take_over``.
        """
        ...

    async def renew(self, operation_id: str, owner: str, lease: float) -> bool:
        """Let the lease end in ``lease`` seconds from now; False when it is not held."""
        ...

    async def release(self, operation_id: str, owner: str) -> None:
        """Give the operation back; not held is fine."""
        ...
