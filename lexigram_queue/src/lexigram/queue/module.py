"""The bus as a module: ``configure`` once at the root, ``scope`` wherever there are consumers."""

from __future__ import annotations

from typing import Annotated, Any

from lexigram.contracts.data.outbox import OutboxProtocol, OutboxStoreProtocol
from lexigram.contracts.infra.tasks import DLQProtocol
from lexigram.contracts.queue import QueueProtocol
from lexigram.di import DynamicModule, Module, Named, module
from lexigram.queue.admin.contributor import QueueAdminContributor
from lexigram.queue.admin.renderer import PackageWidgetRenderer
from lexigram.queue.config import NamedQueueConfig, QueueConfig
from lexigram.queue.consumers.consumer import MessageConsumer
from lexigram.queue.core.dlq import DeadLetterQueue
from lexigram.queue.core.pipeline import MessagePipeline
from lexigram.queue.di.consumers import ConsumersProvider
from lexigram.queue.di.operators import DLQ_NAME, HANDLERS, PAGES
from lexigram.queue.di.provider import QueueProvider
from lexigram.queue.operations.control import BusControl
from lexigram.queue.operations.dead_letters import DeadLetters
from lexigram.queue.outbox.outbox import TransactionalOutbox

EXPORTS = (
    QueueProtocol,
    QueueConfig,
    MessagePipeline,
    DeadLetterQueue,
    OutboxProtocol,
    OutboxStoreProtocol,
    TransactionalOutbox,
    BusControl,
    DeadLetters,
    DLQProtocol,
    Annotated[DLQProtocol, Named(DLQ_NAME)],
    QueueAdminContributor,
    PackageWidgetRenderer,
    *HANDLERS,
    *PAGES,
)


@module(providers=[QueueProvider], exports=EXPORTS, is_global=True)
class QueueModule(Module):
    """Binds the backends of the bus; the bare class reads section ``queue``."""

    @classmethod
    def configure(cls, config: QueueConfig | None = None) -> DynamicModule:
        """The bus with an explicit configuration, or with section ``queue`` when None."""
        return DynamicModule(
            module=cls, providers=[QueueProvider(config)], exports=EXPORTS, is_global=True
        )

    @classmethod
    def scope(cls, *consumers: type[MessageConsumer], **kwargs: Any) -> DynamicModule:
        """Consumers of the importing module: started after boot, drained before shutdown.

        They see what that module sees. ``imports`` and ``exports`` as for any module.
        """
        provider = ConsumersProvider(consumers)

        async def start(_: type[Module]) -> None:
            await provider.start()

        async def stop(_: type[Module]) -> None:
            await provider.stop()

        token = type(
            "_QueueModuleScope",
            (cls,),
            {
                "__module__": cls.__module__,
                "__lexigram_scope_of__": cls,
                "on_module_booted": classmethod(start),
                "on_module_shutdown": classmethod(stop),
            },
        )
        return DynamicModule(module=token, providers=[provider], is_feature=True, **kwargs)

    @classmethod
    def stub(cls, config: QueueConfig | None = None) -> DynamicModule:
        """The bus for tests: one backend named ``default``; reads no file and no variable."""
        default = QueueConfig.from_named_backend(NamedQueueConfig(name="default", primary=True))
        return cls.configure(default if config is None else config)
