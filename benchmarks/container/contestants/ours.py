"""Lexigram."""

from container.services import (
    Checkout,
    Clock,
    LiveCheckout,
    LiveOrders,
    LiveSession,
    Orders,
    Pool,
    Report,
    Session,
    Style,
    handle,
    handle_live,
    load_orders,
    open_session,
)
from lexigram.di import Container

NAME = "lexigram"


def wired():
    container = Container("benchmark")
    container.singleton(Pool)
    for service in (Clock, Style, Report):
        container.transient(service)
    for service in (Session, Orders, Checkout, LiveCheckout):
        container.scoped(service)
    container.scoped(LiveSession, factory=open_session)
    container.scoped(LiveOrders, factory=load_orders)
    container.freeze()
    return container


async def statements():
    container = wired()
    in_scope = "async with container.scope() as scope:\n    result = await scope.resolve({})"
    names = {"container": container}
    return {
        "singleton": ("result = container.get(Pool)", {**names, "Pool": Pool}),
        "transient": ("result = container.get(Report)", {**names, "Report": Report}),
        "scope": (in_scope.format("Checkout"), {**names, "Checkout": Checkout}),
        "scope entry": ("result = await entry()", {"entry": container.entry(handle)}),
        "generator": (in_scope.format("LiveCheckout"), {**names, "LiveCheckout": LiveCheckout}),
        "generator entry": ("result = await entry()", {"entry": container.entry(handle_live)}),
    }


async def boot(graph):
    container = Container("benchmark")
    for cls, _ in graph:
        container.singleton(cls)
    container.freeze()
    await container.start()
    return [container.get(cls) for cls, _ in graph]
