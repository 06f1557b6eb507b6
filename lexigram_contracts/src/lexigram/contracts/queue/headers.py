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
# Set by a driver: which headers of the message it could not read, and what they held. The runtime
# sets such a message aside as undecodable. Applications cannot set it.
UNREADABLE: Final = "ce-lexunreadable"
# Set by the bus alone, on copies of messages that came back unsettled: how often the handler was
# begun, and the delivery_count the copy was made at ("2/3"). Left out of what is published.
BEGUN: Final = "lex-begun"
