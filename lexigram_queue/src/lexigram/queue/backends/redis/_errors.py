"""Errors of Redis and its client, and what to do about them."""

from __future__ import annotations

from lexigram.contracts.queue import QueueError, QueueFullError
from lexigram.queue.backends.redis._wire import NAME
from lexigram.queue.errors import RedisQueueError


def explain(error: Exception, topic: str, address: str, prefix: str) -> QueueError:
    """Our error for one of the client."""
    from redis import exceptions as theirs

    where, text = f"Redis at {address}", str(error)
    forbidden = isinstance(error, theirs.NoPermissionError) or "NOPERM" in text
    if forbidden or "user executing the script can't" in text:
        what = f"{where} does not permit it: {text}"
        fix = (
            f"give the user of the URL its rights: ACL SETUSER <user> ~{prefix}:* "
            "+@connection +@read +@write +@scripting +info +time"
        )
    elif isinstance(error, theirs.AuthenticationError) or "NOAUTH" in text:
        what, fix = f"{where} refused the user or password", "check both in the URL"
    elif isinstance(error, theirs.OutOfMemoryError) or text.startswith("OOM"):
        return QueueFullError(
            f"{where} has no memory left",
            backend=NAME,
            topic=topic,
            hint="raise maxmemory, or let consumers catch up",
        )
    elif isinstance(error, theirs.ReadOnlyError) or "READONLY" in text:
        what, fix = f"{where} is a read-only replica", "use the URL of the primary"
    elif "NOGROUP" in text:
        what = f"a group of topic {topic!r} was never declared, or Redis lost it"
        fix = "await driver.declare(topic, group) first"
    elif isinstance(error, theirs.ResponseError):
        what, fix = f"{where} answered: {text}", "see docs/how-to/brokers.md for what it needs"
    elif isinstance(error, theirs.BusyLoadingError):
        what, fix = f"{where} is still loading its data", "wait, the driver tries again"
    else:
        reason = text or "no answer in time"
        what = f"{where} does not answer: {reason}"
        fix = "check that the server runs and that host and port of the URL are right"
    return RedisQueueError(what, topic=topic, hint=fix)
