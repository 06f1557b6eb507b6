"""Widget handlers: each shows one statistic."""

from lexigram.queue.admin.handlers.consumer_lag import ConsumerLagWidgetHandler
from lexigram.queue.admin.handlers.failed_messages import FailedMessagesWidgetHandler
from lexigram.queue.admin.handlers.queue_depth import QueueDepthWidgetHandler

__all__ = [
    "ConsumerLagWidgetHandler",
    "FailedMessagesWidgetHandler",
    "QueueDepthWidgetHandler",
]
