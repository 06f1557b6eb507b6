"""Payloads of the hooks of the bus: by name (``message.published`` …) or by their class."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class MessagePublishedHook:
    """The broker confirmed a message."""

    queue_name: str
    message_type: str


@frozen(kw_only=True)
class MessageConsumedHook:
    """A handler returned."""

    queue_name: str
    message_type: str


@frozen(kw_only=True)
class QueueDrainedHook:
    """A queue stopped: what was in flight is finished or handed back."""

    queue_name: str
