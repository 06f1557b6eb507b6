"""Consumers: classes that handle the messages of a topic."""

from lexigram.queue.consumers.consumer import MessageConsumer

__all__ = ["MessageConsumer"]
