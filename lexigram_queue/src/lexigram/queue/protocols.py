"""The protocols of the bus, under the path of the 0.1 line."""

from lexigram.contracts.queue.protocols import MessageConsumerProtocol, QueueProtocol

__all__ = ["MessageConsumerProtocol", "QueueProtocol"]
