"""Actions of the console: each is the same call the command line makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lexigram.contracts.queue import DeadLetterReason, QueueError
from lexigram.queue.control import BusControl
from lexigram.queue.dead_letters import DeadLetterFilter, DeadLetters

if TYPE_CHECKING:
    from lexigram.contracts.core.di import ContainerResolverProtocol


async def retry_failed(container: ContainerResolverProtocol, **params: Any) -> dict[str, Any]:
    """Send dead letters back to the groups that set them aside.

    ``backend``, ``topic``, ``group``, ``reason``, ``error`` and ``ids`` choose; ``rate`` limits
    messages per second. What was not sent back stays a dead letter.
    """
    control = await container.resolve_optional(BusControl)
    if control is None:
        return _told(False, "dead letter queue is not registered")
    try:
        queues = control.queues(params.pop("backend", None))
        rate = params.pop("rate", None)
        wanted = _filter(params)
    except (QueueError, TypeError, ValueError) as error:
        return _told(False, str(error))
    if not queues:
        return _told(False, "queue backend is not registered")
    return await _retried([DeadLetters(one) for one in queues], wanted, rate and float(rate))


async def _retried(
    queues: list[DeadLetters], wanted: DeadLetterFilter, rate: float | None
) -> dict[str, Any]:
    total = 0
    for letters in queues:
        total += len([entry async for entry in letters.find(wanted)])
    if not total:
        return _told(True, "no failed messages to retry", retried=0, failed=0)
    retried, errors = 0, list[str]()
    for letters in queues:
        try:
            retried += await letters.redrive(wanted, rate=rate)
        except QueueError as error:
            errors.append(f"{letters.queue.name}: {error.message}")
    text = "; ".join([f"retried {retried} of {total} failed messages", *errors])
    return _told(not errors, text, retried=retried, failed=max(0, total - retried))


def _filter(params: dict[str, Any]) -> DeadLetterFilter:
    given = {key: value for key, value in params.items() if value not in (None, "", [])}
    if "reason" in given:
        given["reason"] = DeadLetterReason(given["reason"])
    return DeadLetterFilter(**given)


def _told(ok: bool, message: str, **echo: int) -> dict[str, Any]:
    return {"ok": ok, "message": message, "echo": echo}
