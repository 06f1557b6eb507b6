"""Errors of the client and the service, and what to do about them."""

from __future__ import annotations

from typing import Any, Final

from lexigram.contracts.queue import Capability, CapabilityError
from lexigram.queue.backends.libraries import require_library

NAME: Final = "gcp_pubsub"
EXTRA: Final = "gcp"
UNDELIVERED: Final = "subscription/num_undelivered_messages"


def hint_for(kind: str) -> str:
    if kind in ("Unauthenticated", "RefreshError", "DefaultCredentialsError", "MalformedError"):
        return (
            "check gcp_pubsub.credentials_file, or the application default credentials "
            "(gcloud auth application-default login)"
        )
    if kind in ("PermissionDenied", "Forbidden"):
        return "the account needs the role roles/pubsub.editor in the project"
    if kind in ("ResourceExhausted", "TooManyRequests"):
        return "the service throttles: it is tried again later; ask for a higher quota"
    if kind == "ServiceUnavailable":
        return "it is tried again later; check gcp_pubsub.endpoint or emulator_host if it stays"
    if kind == "NotFound":
        return "declare the group, or check gcp_pubsub.project_id and topic_id"
    if kind == "FileNotFoundError":
        return "check gcp_pubsub.credentials_file"
    if kind == "InvalidArgument":
        return "the service refuses this request; its text says why"
    return "check gcp_pubsub.project_id, its credentials and that the service can be reached"


def is_foreign(error: Exception) -> bool:
    """Calls and credentials have a base each."""
    auth = require_library("google.auth.exceptions", extra=EXTRA)
    return isinstance(error, (api_errors().GoogleAPIError, auth.GoogleAuthError))


def api_errors() -> Any:
    return require_library("google.api_core.exceptions", extra=EXTRA)


def cannot_error(wanted: Capability, topic: str, instead: str) -> CapabilityError:
    return CapabilityError(
        f"Pub/Sub has no {wanted.value}", backend=NAME, topic=topic, hint=instead
    )
