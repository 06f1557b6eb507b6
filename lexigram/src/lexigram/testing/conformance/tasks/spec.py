"""What the specs of the task queue contract share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any

import anyio
import pytest

from lexigram.contracts.infra.tasks import ClaimedJob, EndKind, JobEnd, TaskQueueProtocol
from lexigram.testing.conformance.suite import ConformanceSuite

HANG_GUARD_SECONDS = 60.0
LONG_LEASE = 60.0  # seconds; longer than any test
# Short enough to wait for. Tests never assert that such a lease was kept.
SHORT_LEASE = 0.05


class TaskQueueCapability(StrEnum):
    """What a task queue can do; the first four are the core."""

    DELIVERY = "delivery"
    ORDER = "order"
    REFUSAL = "refusal"
    COUNTS = "counts"
    LEASING = "leasing"  # JobLeasingProtocol
    CONTROL = "control"  # JobControlProtocol: results, cancel, lists, retry, purge
    TIME = "time"  # delay and scheduled_at
    UNIQUENESS = "uniqueness"
    IDEMPOTENCY = "idempotency"
    DEPENDENCIES = "dependencies"
    SHARING = "sharing"  # two objects on one store


CORE = frozenset(
    {
        TaskQueueCapability.DELIVERY,
        TaskQueueCapability.ORDER,
        TaskQueueCapability.REFUSAL,
        TaskQueueCapability.COUNTS,
    }
)


class TaskQueueSpec(ConformanceSuite):
    """The contract and its core."""

    contract = TaskQueueProtocol
    core = CORE

    @pytest.fixture
    def neighbour(self, subject: Any) -> Any:
        """Another queue object on the same store; for SHARING."""
        pytest.fail("SHARING is declared, but no fixture `neighbour` is given", pytrace=False)


async def accepted(subject: Any, name: str = "work", /, **options: Any) -> str:
    """Enqueue a job; its id."""
    return str((await subject.enqueue({"name": name, **options})).unwrap())


async def claimed(subject: Any, limit: int = 10, /, **options: Any) -> Sequence[ClaimedJob]:
    """Claim for a long time."""
    found: Sequence[ClaimedJob] = await subject.claim(
        options.pop("holder", "me"), limit, lease=options.pop("lease", LONG_LEASE), **options
    )
    return found


async def ended(queue: Any, claim: ClaimedJob, kind: EndKind, **facts: Any) -> bool:
    """Report one end; whether it counted."""
    [counted] = await queue.finish([JobEnd(claim=claim, kind=kind, **facts)])
    return bool(counted)


async def until(look: Callable[[], Awaitable[Any]]) -> Any:
    """Look until the answer is true."""
    with anyio.fail_after(HANG_GUARD_SECONDS):
        while not (answer := await look()):  # noqa: ASYNC110 - there is no event for a clock
            await anyio.sleep(0.01)
    return answer
