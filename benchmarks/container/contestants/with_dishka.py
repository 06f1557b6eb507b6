"""dishka."""

from dishka import FromDishka, Provider, Scope, make_async_container, make_container
from dishka.integrations.base import wrap_injection

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

NAME = "dishka"


def wiring():
    provider = Provider()
    provider.provide(Pool, scope=Scope.APP)
    for service in (Clock, Style, Report):
        provider.provide(service, scope=Scope.APP, cache=False)
    for source in (Session, Orders, Checkout, LiveCheckout, open_session, load_orders):
        provider.provide(source, scope=Scope.REQUEST)
    return provider


async def handle(checkout: FromDishka[Checkout]) -> Checkout:
    return checkout


async def handle_live(checkout: FromDishka[LiveCheckout]) -> LiveCheckout:
    return checkout


async def statements():
    plain, container = make_container(wiring()), make_async_container(wiring())
    in_scope = "async with container() as scope:\n    result = await scope.get({})"
    names = {"container": container}
    return {
        "singleton": ("result = container.get(Pool)", {"container": plain, "Pool": Pool}),
        "transient": ("result = container.get(Report)", {"container": plain, "Report": Report}),
        "scope": (in_scope.format("Checkout"), {**names, "Checkout": Checkout}),
        "scope entry": ("result = await entry()", {"entry": entry(container, handle)}),
        "generator": (in_scope.format("LiveCheckout"), {**names, "LiveCheckout": LiveCheckout}),
        "generator entry": ("result = await entry()", {"entry": entry(container, handle_live)}),
    }


def entry(container, handler):
    return wrap_injection(
        func=handler,
        is_async=True,
        container_getter=lambda args, kwargs: container,
        manage_scope=True,
    )


async def boot(graph):
    provider = Provider(scope=Scope.APP)
    for cls, _ in graph:
        provider.provide(cls)
    container = make_container(provider)
    return [container.get(cls) for cls, _ in graph]
