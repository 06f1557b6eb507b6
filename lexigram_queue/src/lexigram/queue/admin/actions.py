"""Actions of the admin console; the command line calls the same methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lexigram.contracts.queue import DeadLetterReason, QueueError
from lexigram.queue.operations.control import BusControl
from lexigram.queue.operations.dead_letters import DeadLetterFilter, DeadLetters

if TYPE_CHECKING:
    from lexigram.contracts.core.di import ContainerResolverProtocol


async def retry_failed(container: ContainerResolverProtocol, **params: Any) -> dict[str, Any]:
    """Send dead letters back to the groups that set them aside.

    ``backend``, ``topic``, ``group``, ``reason``, ``error`` and ``ids`` choose; ``rate`` limits
    messages per second. What was not sent back stays a dead letter.
    """
    control = await container.resolve_optional(BusControl)
    if control is None:
        return _result(False, "dead letter queue is not registered")
    try:
        queues = control.queues(params.pop("backend", None))
        rate = params.pop("rate", None)
        wanted = _filter(params)
    except (QueueError, TypeError, ValueError) as error:
        return _result(False, str(error))
    if not queues:
        return _result(False, "queue backend is not registered")
    return await _retry([DeadLetters(one) for one in queues], wanted, rate and float(rate))


async def _retry(
    queues: list[DeadLetters], wanted: DeadLetterFilter, rate: float | None
) -> dict[str, Any]:
    total = 0
    for dead_letters in queues:
        total += len([entry async for entry in dead_letters.find(wanted)])
    if not total:
        return _result(True, "no failed messages to retry", retried=0, failed=0)
    retried, errors = 0, list[str]()
    for dead_letters in queues:
        try:
            retried += await dead_letters.redrive(wanted, rate=rate)
        except QueueError as error:
            errors.append(f"{dead_letters.queue.name}: {error.message}")
    text = "; ".join([f"retried {retried} of {total} failed messages", *errors])
    return _result(not errors, text, retried=retried, failed=max(0, total - retried))


def _filter(params: dict[str, Any]) -> DeadLetterFilter:
    given = {key: value for key, value in params.items() if value not in (None, "", [])}
    if "reason" in given:
        given["reason"] = DeadLetterReason(given["reason"])
    return DeadLetterFilter(**given)


def _result(ok: bool, message: str, **echo: int) -> dict[str, Any]:
    return {"ok": ok, "message": message, "echo": echo}
