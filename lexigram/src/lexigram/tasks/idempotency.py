"""Recognise a task that was submitted before."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Protocol

import orjson
from attrs import define

from lexigram import clock
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.infra.tasks.errors import JobRefusedError
from lexigram.contracts.infra.tasks.types import IdempotencyResult
from lexigram.serialization import unstructure
from lexigram.tasks.intake import result_text, result_value


@define(kw_only=True)
class Submission:
    """What is known about a key."""

    key: str
    task_id: str
    created_at: float
    is_completed: bool = False
    result: str | None = None


class SubmissionStore(Protocol):
    """Keeps submissions by key."""

    async def add(self, submission: Submission, task_name: str) -> bool: ...

    async def get(self, key: str) -> Submission | None: ...

    async def complete(self, key: str, result: str | None) -> None: ...

    async def purge(self, older_than: float) -> int: ...


class IdempotencyManager:
    """Implements IdempotencyManagerProtocol on a store.

    It is for submissions to whatever you like. Jobs of a TaskQueue need none: their
    ``idempotency_key`` does the same in one step with the enqueueing.
    """

    def __init__(self, store: SubmissionStore) -> None:
        self._store = store

    def generate_key(
        self, task_name: str, params: Mapping[str, Any], client_key: str | None = None
    ) -> str:
        """``name:`` and a digest, of the client's key or of the parameters."""
        if client_key is not None:
            data = client_key.encode()
        else:
            try:
                plain = unstructure(dict(params), dict[str, object])
            except LexigramError as error:
                raise JobRefusedError(
                    f"parameters of {task_name!r} make no key: {error.message}", hint=error.hint
                ) from error
            data = orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
        mark = b"client" if client_key is not None else b"params"
        return f"{task_name}:{sha256(mark + b':' + data).hexdigest()}"

    async def check_duplicate(self, key: str) -> IdempotencyResult | None:
        """What is known about the key, or None."""
        found = await self._store.get(key)
        if found is None:
            return None
        return IdempotencyResult(
            task_id=found.task_id,
            idempotency_key=key,
            status="completed" if found.is_completed else "duplicate",
            created_at=datetime.fromtimestamp(found.created_at, UTC),
            result=result_value(found.result),
        )

    async def record_submission(
        self, key: str, task_id: str, task_name: str, params: Mapping[str, Any]
    ) -> bool:
        """Claim the key; ``params`` are in the key already and are not kept."""
        submission = Submission(key=key, task_id=task_id, created_at=clock.timestamp())
        return await self._store.add(submission, task_name)

    async def record_completion(self, key: str, result: Any) -> None:
        """Keep the result for later duplicates; an unknown key changes nothing."""
        try:
            text = result_text(result)
        except LexigramError as error:
            raise JobRefusedError(
                f"the result for {key!r} cannot be kept: {error.message}", hint=error.hint
            ) from error
        await self._store.complete(key, text)

    async def purge(self, older_than: float) -> int:
        """Forget keys submitted so many seconds ago; how many."""
        return await self._store.purge(older_than)


class MemorySubmissions:
    """In this process."""

    def __init__(self) -> None:
        self._known: dict[str, Submission] = {}

    async def add(self, submission: Submission, task_name: str) -> bool:
        return self._known.setdefault(submission.key, submission) is submission

    async def get(self, key: str) -> Submission | None:
        return self._known.get(key)

    async def complete(self, key: str, result: str | None) -> None:
        found = self._known.get(key)
        if found is not None:
            found.is_completed, found.result = True, result

    async def purge(self, older_than: float) -> int:
        limit = clock.timestamp() - older_than
        old = [key for key, item in self._known.items() if item.created_at <= limit]
        for key in old:
            del self._known[key]
        return len(old)
