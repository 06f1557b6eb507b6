"""Headers of a message that mean something to the bus; all others are the application's own."""

from __future__ import annotations

from typing import Final

# Messages with the same value are delivered one after the other, in the order they were sent.
ORDERING_KEY: Final = "ordering-key"
# Usually a tenant: many messages of one value do not hold up those of another.
FAIRNESS_KEY: Final = "fairness-key"
# Seconds since 1970-01-01 UTC, as text: not delivered earlier.
DELIVER_AT: Final = "deliver-at"
# How the payload became bytes; without it the configured serializer is meant.
CONTENT_TYPE: Final = "content-type"
# Request and reply: the topic for the answer, and which question it answers.
REPLY_TO: Final = "reply-to"
CORRELATION_ID: Final = "correlation-id"
