"""A shop whose parts meet on the bus only."""

from __future__ import annotations

import attrs

from lexigram.app import Application
from lexigram.contracts.core.di import ContainerRegistrarProtocol
from lexigram.di import Module, Provider, module
from lexigram.queue import (
    MessageConsumer,
    NamedQueueConfig,
    QueueConfig,
    QueueModule,
    RetryPolicy,
)


@attrs.frozen
class Order:
    """What is published to ``orders.created``."""

    number: int
    customer: str
    cents: int


class CardService:
    """Takes money, except from blocked customers."""

    def __init__(self) -> None:
        self.blocked = {"Bob"}
        self.taken = 0

    def charge(self, customer: str, cents: int) -> None:
        """Raises PermissionError for a blocked card."""
        if customer in self.blocked:
            raise PermissionError(f"the card of {customer} was refused")
        self.taken += cents


class Billing(MessageConsumer):
    """Charges the card; a refused one is tried twice more, then set aside."""

    topic = "orders.created"
    retry = RetryPolicy(max_retries=2, base=0.05, cap=0.2)

    async def handle(self, order: Order, cards: CardService) -> None:
        """Charge one order."""
        cards.charge(order.customer, order.cents)
        print(f"billing: {order.customer} paid {order.cents / 100:.2f}")


class Shipping(MessageConsumer):
    """Packs every order, paid or not: it is a group of its own."""

    topic = "orders.created"

    async def handle(self, order: Order) -> None:
        """Pack one order."""
        print(f"shipping: packed order {order.number}")


class CardProvider(Provider):
    """Binds the card service."""

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """One for the application."""
        container.singleton(CardService)


@module(
    imports=[QueueModule.scope(Billing, Shipping)], providers=[CardProvider], exports=[CardService]
)
class ShopModule(Module):
    """The consumers and what they need."""


def create() -> Application:
    """The application; the driver is a matter of configuration."""
    bus = QueueConfig.from_named_backend(NamedQueueConfig(name="events", driver="memory"))
    return Application("shop", modules=[QueueModule.configure(bus), ShopModule])
