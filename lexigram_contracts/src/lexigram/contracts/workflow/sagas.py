"""Where sagas are kept so that one process at a time works on each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from lexigram.contracts.workflow.protocols import SagaStoreProtocol
from lexigram.contracts.workflow.types import SagaState


@dataclass(frozen=True)
class StoredSaga:
    """A saga as it is stored, and who works on it."""

    saga_id: str
    state: SagaState
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    # None: nobody
    owner: str | None = None
    # seconds since 1970-01-01 UTC by the clock of the store
    leased_until: float | None = None


@runtime_checkable
class LeasingSagaStoreProtocol(SagaStoreProtocol, Protocol):
    """A saga store that lends each saga to one owner for a time.

    Guaranteed: at any moment one owner holds a lease, and what ``save_owned`` wrote is from the
    holder: a process that lost the lease cannot write any more. Not guaranteed: that a holder who lost
    it has stopped working; it learns so at its next call. ``save`` and ``delete`` ask nobody
    and leave the lease as it is.
    """

    async def claim(
        self,
        saga_id: str,
        owner: str,
        lease: float,
        *,
        create: bool = True,
        take_over: bool = False,
    ) -> StoredSaga | None:
        """Lend the saga to ``owner`` for ``lease`` seconds; as it is stored, with the new lease.

        An unknown one is made, PENDING without data, or None without ``create``. Raises
        SagaBusyError while another owner's lease runs, unless ``take_over``: then the other one
        cannot write any more. An owner that has it gets it again.
        """
        ...

    async def save_owned(
        self, saga_id: str, state: SagaState, data: dict[str, Any], owner: str, lease: float | None
    ) -> None:
        """Like ``save``, for the holder only; the lease then ends in ``lease`` seconds.

        None gives the saga back. Raises SagaBusyError, and writes nothing, when ``owner`` does
        not hold the saga; a lease that ran out is still held while nobody else took it.
        """
        ...

    async def renew(self, saga_id: str, owner: str, lease: float) -> bool:
        """Let the lease end in ``lease`` seconds from now; False when it is not held."""
        ...

    async def release(self, saga_id: str, owner: str) -> None:
        """Give the saga back; not held is fine."""
        ...

    async def unfinished(self, *, limit: int = 100) -> Sequence[StoredSaga]:
        """Sagas that are RUNNING or COMPENSATING with nobody at work, the oldest change first."""
        ...
