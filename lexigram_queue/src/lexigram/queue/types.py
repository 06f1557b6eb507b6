"""The message types of the bus, under the path of the 0.1 line."""

from lexigram.contracts.queue.types import BusMessage, DeliveryGuarantee

__all__ = ["BusMessage", "DeliveryGuarantee"]
