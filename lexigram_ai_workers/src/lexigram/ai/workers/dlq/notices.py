"""Tells people about letters that will not be tried again: in the log, by webhook, by a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

from lexigram.ai.workers.errors import DLQError
from lexigram.ai.workers.types import DLQItem
from lexigram.observability import get_logger

logger = get_logger(__name__)

WEBHOOK_SECONDS = 10.0


class NotifierProtocol(Protocol):
    """Somebody to tell. What it raises is logged, and it is told again at the next look."""

    @property
    def name(self) -> str:
        """Unique among the notifiers of one worker; remembered with each letter."""
        ...

    async def notify(self, item: DLQItem) -> None:
        """Tell of one letter."""
        ...


class LogNotifier:
    """An error in the log, without the payload."""

    name = "log"

    async def notify(self, item: DLQItem) -> None:
        """One line."""
        logger.error(
            "a dead letter will not be tried again",
            job=item.job_id,
            source=item.metadata.get("source"),
            category=item.failure_category.value,
            retries=item.retry_count,
            error=item.last_error,
        )


class WebhookNotifier:
    """A POST of JSON to a URL; any answer but 2xx counts as a failure.

    ``Idempotency-Key`` is the same when one letter is told again.
    """

    name = "webhook"

    def __init__(self, url: str, timeout: float = WEBHOOK_SECONDS) -> None:
        self.url = url
        self._timeout = timeout

    async def notify(self, item: DLQItem) -> None:
        """Send ``{"event": "dead_letter", "item": …}``; the payload of the letter stays here."""
        import httpx  # 60 ms, and most applications have no webhook

        source = item.metadata.get("source", "")
        key = f"{source}:{item.job_id}:{item.last_failure.timestamp():.6f}"
        body = {"event": "dead_letter", "item": item.to_dict()}
        try:
            async with httpx.AsyncClient(timeout=self._timeout) as client:
                answer = await client.post(self.url, json=body, headers={"Idempotency-Key": key})
        except httpx.HTTPError as error:
            raise DLQError(
                f"the webhook could not be reached: {type(error).__name__}",
                details={"job_id": item.job_id},
                cause=error,
            ) from error
        if not answer.is_success:
            raise DLQError(
                f"the webhook answered {answer.status_code}", details={"job_id": item.job_id}
            )


class FunctionNotifier:
    """A function of the application, sync or async; a sync one must not block."""

    def __init__(self, function: Callable[[DLQItem], Any], name: str = "handler") -> None:
        self.name = name
        self._function = function

    async def notify(self, item: DLQItem) -> None:
        """Call it."""
        result = self._function(item)
        if inspect.isawaitable(result):
            await result
