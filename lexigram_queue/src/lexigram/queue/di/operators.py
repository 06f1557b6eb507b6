"""Binds what operators use: the control of the bus, dead letters, and the console's parts."""

from __future__ import annotations

from functools import partial

from lexigram.contracts.core.di import ContainerRegistrarProtocol
from lexigram.contracts.infra.tasks import DLQProtocol
from lexigram.di import unbound
from lexigram.queue.admin.contributor import QueueAdminContributor, widget_renderer
from lexigram.queue.admin.handlers import (
    ConsumerLagWidgetHandler,
    FailedMessagesWidgetHandler,
    QueueDepthWidgetHandler,
)
from lexigram.queue.admin.pages.consumers import QueueConsumersPage
from lexigram.queue.admin.pages.jobs import QueueJobsPage
from lexigram.queue.admin.pages.overview import QueueOverviewPage
from lexigram.queue.admin.renderer import PackageWidgetRenderer
from lexigram.queue.operations.control import BusControl
from lexigram.queue.operations.dead_letters import DeadLetters
from lexigram.queue.operations.dlq import BusDeadLetters

DLQ_NAME = "bus"
HANDLERS = (QueueDepthWidgetHandler, ConsumerLagWidgetHandler, FailedMessagesWidgetHandler)
PAGES = (QueueOverviewPage, QueueJobsPage, QueueConsumersPage)


def register_operators(container: ContainerRegistrarProtocol, control: BusControl) -> None:
    """Bind them; the unnamed DLQProtocol only where nobody else has bound one."""
    dead_letters = BusDeadLetters(control)
    container.singleton(BusControl, control)
    container.singleton(BusDeadLetters, dead_letters)
    container.singleton(DLQProtocol, dead_letters, name=DLQ_NAME)
    container.singleton(DLQProtocol, dead_letters, when=unbound)
    container.singleton(DeadLetters, factory=control.dead_letters)
    container.singleton(QueueAdminContributor)
    container.singleton(PackageWidgetRenderer, factory=widget_renderer)
    for kind in (*HANDLERS, *PAGES):
        container.transient(kind, factory=partial(kind, control))
