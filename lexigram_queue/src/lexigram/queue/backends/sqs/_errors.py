"""Errors of the client and the service, and what to do about them."""

from __future__ import annotations

from typing import Final

from lexigram.contracts.data.blobs import BlobError
from lexigram.contracts.queue import Capability, CapabilityError
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.backends.sqs._wire import Json
from lexigram.queue.errors import SQSQueueError

NAME: Final = "sqs"
EXTRA: Final = "sqs"


def is_foreign(error: Exception) -> bool:
    """The client has two bases, and the blob store one."""
    library = require_library("botocore.exceptions", extra=EXTRA)
    return isinstance(error, BlobError | library.ClientError | library.BotoCoreError)


def hint_for(code: str, status: int | None) -> str:
    last = code.rsplit(".", 1)[-1]
    if last in _CREDENTIALS or "AccessDenied" in last or status in (401, 403):
        return (
            "check sqs.access_key_id and sqs.secret_access_key, or the role of this machine; the "
            "rights it needs are in docs/how-to/brokers.md"
        )
    if "Throttl" in last or last in ("OverLimit", "TooManyRequests") or status in (429, 503):
        return "SQS throttles: it is tried again later; ask AWS for a higher quota if it stays so"
    if last in _GONE:
        return "the queue is not there: declare the group, or check sqs.queue_url and sqs.region"
    if "InvalidMessageContents" in last or "InvalidParameter" in last:
        return "SQS refuses this setting or message; its text says which"
    return "check sqs.region and sqs.queue_url, and that SQS can be reached"


_CREDENTIALS: Final = frozenset(
    {
        "InvalidClientTokenId",
        "InvalidSecurity",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
        "ExpiredToken",
        "ExpiredTokenException",
        "MissingAuthenticationToken",
        "IncompleteSignature",
        "NoCredentialsError",
        "PartialCredentialsError",
    }
)
_GONE: Final = frozenset({"NonExistentQueue", "QueueDoesNotExist"})


def code_of(error: BaseException) -> str:
    return str(_answer(error, "Error").get("Code") or type(error).__name__)


def status_of(error: BaseException) -> int | None:
    found = _answer(error, "ResponseMetadata").get("HTTPStatusCode")
    return None if found is None else int(found)


def _answer(error: BaseException, part: str) -> Json:
    """What SQS said, where it said anything."""
    answer: Json = getattr(error, "response", None) or {}
    found: Json = answer.get(part) or {}
    return found


def is_gone(error: BaseException) -> bool:
    return code_of(error).rsplit(".", 1)[-1] in _GONE


def client_error() -> type[Exception]:
    found: type[Exception] = require_library("botocore.exceptions", extra=EXTRA).ClientError
    return found


def make_gone_error(queue: str) -> SQSQueueError:
    """A group was dropped since it was listed."""
    return SQSQueueError(
        f"queue {queue} is gone",
        details={"gone": queue},
        hint=hint_for("QueueDoesNotExist", None),
    )


def missing_error(topic: str, group: str) -> SQSQueueError:
    return SQSQueueError(
        f"group {group} of {topic} does not exist",
        topic=topic,
        hint="declare the group first; the queues of another prefix are others",
    )


def cannot_error(wanted: Capability, topic: str, instead: str) -> CapabilityError:
    return CapabilityError(
        f"SQS cannot do this {wanted.value}", backend=NAME, topic=topic, hint=instead
    )
