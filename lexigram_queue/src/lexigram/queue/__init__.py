"""The Lexigram message bus: its module and its configuration."""

from lexigram.queue.config import NamedQueueConfig, QueueConfig
from lexigram.queue.di.provider import QueueProvider
from lexigram.queue.module import QueueModule

__all__ = ["NamedQueueConfig", "QueueConfig", "QueueModule", "QueueProvider"]
