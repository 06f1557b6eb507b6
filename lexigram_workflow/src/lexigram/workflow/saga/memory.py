"""Sagas kept in this process, with all promises of the contract but survival."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from attrs import define

from lexigram import clock
from lexigram.contracts.workflow.errors import SagaBusyError
from lexigram.contracts.workflow.sagas import StoredSaga
from lexigram.contracts.workflow.types import SagaState
from lexigram.workflow.saga._progress import json_text

UNFINISHED = frozenset({SagaState.RUNNING, SagaState.COMPENSATING})


@define
class _Row:
    state: SagaState
    # text, as a database has it: nobody shares an object with the store
    data: str
    owner: str | None = None
    leased_until: float | None = None
    updated_at: float = 0.0


class InMemorySagaStore:
    """Implements ``LeasingSagaStoreProtocol``; sagas stay until they are deleted."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}

    async def save(self, saga_id: str, state: SagaState, data: dict[str, Any]) -> None:
        """See the contract."""
        text = json_text(saga_id, data)
        row = self._rows.setdefault(saga_id, _Row(state, text))
        row.state, row.data, row.updated_at = state, text, clock.timestamp()

    async def load(self, saga_id: str) -> tuple[SagaState, dict[str, Any]] | None:
        """See the contract."""
        row = self._rows.get(saga_id)
        return None if row is None else (row.state, json.loads(row.data))

    async def delete(self, saga_id: str) -> None:
        """See the contract."""
        self._rows.pop(saga_id, None)

    async def claim(
        self,
        saga_id: str,
        owner: str,
        lease: float,
        *,
        create: bool = True,
        take_over: bool = False,
    ) -> StoredSaga | None:
        """See the contract."""
        now = clock.timestamp()
        row = self._rows.get(saga_id)
        if row is None:
            if not create:
                return None
            row = self._rows[saga_id] = _Row(SagaState.PENDING, "{}", updated_at=now)
        if row.owner not in (None, owner) and (row.leased_until or 0) > now and not take_over:
            raise SagaBusyError(saga_id, row.owner, row.leased_until)
        row.owner, row.leased_until = owner, now + lease
        return _stored(saga_id, row)

    async def save_owned(
        self, saga_id: str, state: SagaState, data: dict[str, Any], owner: str, lease: float | None
    ) -> None:
        """See the contract."""
        text = json_text(saga_id, data)
        row = self._rows.get(saga_id)
        if row is None or row.owner != owner:
            held = (row.owner, row.leased_until) if row else (None, None)
            raise SagaBusyError(saga_id, *held)
        now = clock.timestamp()
        row.state, row.data, row.updated_at = state, text, now
        row.owner = None if lease is None else owner
        row.leased_until = None if lease is None else now + lease

    async def renew(self, saga_id: str, owner: str, lease: float) -> bool:
        """See the contract."""
        row = self._rows.get(saga_id)
        if row is None or row.owner != owner:
            return False
        row.leased_until = clock.timestamp() + lease
        return True

    async def release(self, saga_id: str, owner: str) -> None:
        """See the contract."""
        row = self._rows.get(saga_id)
        if row is not None and row.owner == owner:
            row.owner = row.leased_until = None

    async def unfinished(self, *, limit: int = 100) -> Sequence[StoredSaga]:
        """See the contract."""
        now = clock.timestamp()
        free = [
            (row.updated_at, saga_id, row)
            for saga_id, row in self._rows.items()
            if row.state in UNFINISHED and (row.leased_until or 0) <= now
        ]
        free.sort(key=lambda found: found[:2])
        return [_stored(saga_id, row) for _, saga_id, row in free[:limit]]


def _stored(saga_id: str, row: _Row) -> StoredSaga:
    return StoredSaga(saga_id, row.state, json.loads(row.data), row.owner, row.leased_until)
