"""Contracts of the message bus."""

from lexigram.contracts.queue.driver import (
    CORE_CAPABILITIES,
    BegunMarkProtocol,
    Capability,
    Delivery,
    QueueDriverProtocol,
)
from lexigram.contracts.queue.errors import (
    CapabilityError,
    InvalidMessageError,
    MessageRejectedError,
    MessageTooLargeError,
    NotConnectedError,
    QueueError,
    QueueFullError,
)
from lexigram.contracts.queue.protocols import MessageConsumerProtocol, QueueProtocol
from lexigram.contracts.queue.types import (
    BusMessage,
    DeadLetterEntry,
    DeadLetterReason,
    DeliveryGuarantee,
)

__all__ = [
    "CORE_CAPABILITIES",
    "BegunMarkProtocol",
    "BusMessage",
    "Capability",
    "CapabilityError",
    "DeadLetterEntry",
    "DeadLetterReason",
    "Delivery",
    "DeliveryGuarantee",
    "InvalidMessageError",
    "MessageConsumerProtocol",
    "MessageRejectedError",
    "MessageTooLargeError",
    "NotConnectedError",
    "QueueDriverProtocol",
    "QueueError",
    "QueueFullError",
    "QueueProtocol",
]
