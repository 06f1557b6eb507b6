"""What the drivers of cloud services share: names, answers that are no errors, errors, health."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, cast

from lexigram import clock
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue import QueueError


def hashed(text: str) -> str:
    """64 letters that stand for any text: services take short names of few characters."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def json_object(text: str | None) -> dict[str, Any]:
    """What somebody wrote as a JSON object; empty where it is none."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


async def unless(refused: type[Exception], asked: Awaitable[Any]) -> bool:
    """Ask; False when the service answers so, such as that a thing is there, or is not."""
    try:
        await asked
    except refused:
        return False
    return True


@contextmanager
def translated(
    is_foreign: Callable[[Exception], bool], ours: Callable[[Exception], QueueError]
) -> Generator[None]:
    """Errors of a client become ours; what neither network nor client raised is let through.

    ``is_foreign``: whether the client's library raised it, whose classes are loaded late.
    """
    try:
        yield
    except QueueError:
        raise
    except Exception as error:  # the boundary to the client
        if isinstance(error, TimeoutError | OSError | ValueError) or is_foreign(error):
            raise ours(error) from error
        raise


async def health_of(
    ask: Callable[[], Awaitable[Any]], service: str, facts: Mapping[str, str], timeout: float
) -> HealthCheckResult:
    """HEALTHY when the service answers in time; ``ask`` raises QueueError otherwise."""
    begun, text = clock.monotonic(), None
    try:
        async with asyncio.timeout(timeout):
            await ask()
    except QueueError as error:
        text = error.message
    except TimeoutError:
        text = f"no answer in {timeout} s"
    return HealthCheckResult(
        component="queue",
        status=HealthStatus.HEALTHY if text is None else HealthStatus.UNHEALTHY,
        message=f"{service} queue OK" if text is None else None,
        error=text,
        details=dict(facts),
        duration_ms=(clock.monotonic() - begun) * 1000,
    )
