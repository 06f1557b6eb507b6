"""Errors of the client and the service, and what to do about them."""

from __future__ import annotations

from typing import Final

from lexigram.contracts.queue import Capability, CapabilityError
from lexigram.queue.backends.azure_servicebus._links import EXTRA
from lexigram.queue.backends.libraries import require_library

NAME: Final = "azure_servicebus"


def hint_for(kind: str, status: int | None) -> str:
    if kind == "ClientAuthenticationError" or "Auth" in kind or status in (401, 403):
        return (
            "check azure_servicebus.connection_str: its key needs the rights Manage, Send, Listen"
        )
    if kind == "ServiceBusServerBusyError" or status in (429, 503):
        return "the service throttles: it is tried again later; more units or Premium take more"
    if "NotFound" in kind or status == 404:
        return "the entity is not there: declare the group, or check azure_servicebus.queue_name"
    if status == 400:
        return "the service refuses this setting; its text says which"
    return "check azure_servicebus.connection_str and that the namespace can be reached"


def is_foreign(error: Exception) -> bool:
    """Both clients have one base."""
    return isinstance(error, require_library("azure.core.exceptions", extra=EXTRA).AzureError)


def cannot_error(wanted: Capability, topic: str, instead: str) -> CapabilityError:
    return CapabilityError(
        f"Service Bus has no {wanted.value}", backend=NAME, topic=topic, hint=instead
    )
