"""Read by the type checkers only: what a user of the extensions gets without a cast."""

from typing import assert_type

from lexigram.ai.workers import WorkersConfig, WorkersModule
from lexigram.app import Application
from lexigram.di import DynamicModule
from lexigram.queue import NamedQueueConfig, QueueConfig, QueueModule
from lexigram.workflow import WorkflowConfig, WorkflowModule

# A list is accepted, a tuple is kept.
config = QueueConfig(backends=[NamedQueueConfig(name="orders")])
assert_type(config.backends, tuple[NamedQueueConfig, ...])
assert_type(config.primary, NamedQueueConfig | None)

assert_type(QueueModule.configure(config), DynamicModule)
assert_type(WorkflowModule.stub(), DynamicModule)
assert_type(WorkersModule.configure(WorkersConfig()), DynamicModule)


async def services(app: Application) -> None:
    assert_type(app.container.get(QueueConfig), QueueConfig)
    assert_type(await app.container.resolve(WorkflowConfig), WorkflowConfig)
    assert_type(await app.container.resolve_optional(WorkersConfig), WorkersConfig | None)
