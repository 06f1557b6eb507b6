"""The AI workers as a module: ``WorkersModule.configure()`` once at the root of an application."""

from __future__ import annotations

from lexigram.ai.workers.config import WorkersConfig
from lexigram.ai.workers.di.provider import WorkersProvider
from lexigram.di import DynamicModule, Module, module


@module(providers=[WorkersProvider], exports=[WorkersConfig])
class WorkersModule(Module):
    """Binds the configuration of the workers; the bare class reads section ``ai_workers``."""

    @classmethod
    def configure(cls, config: WorkersConfig | None = None) -> DynamicModule:
        """The workers with an explicit configuration, or section ``ai_workers`` when None."""
        return DynamicModule(
            module=cls, providers=[WorkersProvider(config)], exports=[WorkersConfig]
        )

    @classmethod
    def stub(cls, config: WorkersConfig | None = None) -> DynamicModule:
        """The workers for tests: defaults, no file or variable is read."""
        return cls.configure(WorkersConfig() if config is None else config)
