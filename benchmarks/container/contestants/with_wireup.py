"""wireup."""

import wireup
from wireup import Injected, inject_from_container, injectable

from container.services import (
    Checkout,
    Clock,
    LiveCheckout,
    Orders,
    Pool,
    Report,
    Session,
    Style,
    load_orders,
    open_session,
)

NAME = "wireup"


def wiring():
    scoped = (Session, Orders, Checkout, LiveCheckout, open_session, load_orders)
    return [
        injectable(Pool, lifetime="singleton"),
        *(injectable(service, lifetime="transient") for service in (Clock, Style, Report)),
        *(injectable(source, lifetime="scoped") for source in scoped),
    ]


async def handle(checkout: Injected[Checkout]) -> Checkout:
    return checkout


async def handle_live(checkout: Injected[LiveCheckout]) -> LiveCheckout:
    return checkout


async def statements():
    everything = wiring()
    plain = wireup.create_sync_container(injectables=everything[:7])
    container = wireup.create_async_container(injectables=everything)
    # Transients live in scopes only; the scope is open before the clock starts.
    opened = plain.enter_scope().__enter__()
    in_scope = "async with container.enter_scope() as scope:\n    result = await scope.get({})"
    names = {"container": container}
    return {
        "singleton": ("result = container.get(Pool)", {"container": plain, "Pool": Pool}),
        "transient": ("result = scope.get(Report)", {"scope": opened, "Report": Report}),
        "scope": (in_scope.format("Checkout"), {**names, "Checkout": Checkout}),
        "scope entry": (
            "result = await entry()",
            {"entry": inject_from_container(container)(handle)},
        ),
        "generator": (in_scope.format("LiveCheckout"), {**names, "LiveCheckout": LiveCheckout}),
        "generator entry": (
            "result = await entry()",
            {"entry": inject_from_container(container)(handle_live)},
        ),
    }


async def boot(graph):
    container = wireup.create_sync_container(injectables=[injectable(cls) for cls, _ in graph])
    return [container.get(cls) for cls, _ in graph]
