"""The bus as a module: ``QueueModule.configure(...)`` once at the root of an application."""

from __future__ import annotations

from lexigram.di import DynamicModule, Module, module
from lexigram.queue.config import NamedQueueConfig, QueueConfig
from lexigram.queue.di.provider import QueueProvider


@module(providers=[QueueProvider], exports=[QueueConfig], is_global=True)
class QueueModule(Module):
    """Binds the configuration of the bus; the bare class reads section ``queue``."""

    @classmethod
    def configure(cls, config: QueueConfig | None = None) -> DynamicModule:
        """The bus with an explicit configuration, or with section ``queue`` when None."""
        return DynamicModule(
            module=cls, providers=[QueueProvider(config)], exports=[QueueConfig], is_global=True
        )

    @classmethod
    def stub(cls, config: QueueConfig | None = None) -> DynamicModule:
        """The bus for tests: one backend called ``default``, no file or variable is read."""
        default = QueueConfig.from_named_backend(NamedQueueConfig(name="default", primary=True))
        return cls.configure(default if config is None else config)
