"""dependency-injector alone: no scopes, so values local to the context are reset by hand."""

from dependency_injector import containers, providers

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

NAME = "dependency-injector"


class Wiring(containers.DeclarativeContainer):
    pool = providers.Singleton(Pool)
    clock = providers.Factory(Clock)
    style = providers.Factory(Style, clock=clock)
    report = providers.Factory(Report, style=style, clock=clock)
    session = providers.ContextLocalSingleton(Session, pool=pool)
    orders = providers.ContextLocalSingleton(Orders, session=session)
    checkout = providers.ContextLocalSingleton(Checkout, session=session, orders=orders, pool=pool)
    live_session = providers.ContextLocalResource(open_session, pool=pool)
    live_orders = providers.ContextLocalSingleton(load_orders, session=live_session)
    live_checkout = providers.Factory(
        LiveCheckout, session=live_session, orders=live_orders, pool=pool
    )


async def statements():
    wiring = Wiring()
    scope = "result = checkout()\ncheckout.reset()\norders.reset()\nsession.reset()"
    generator = "result = await checkout()\norders.reset()\nawait session.shutdown()"
    return {
        "singleton": ("result = pool()", {"pool": wiring.pool}),
        "transient": ("result = report()", {"report": wiring.report}),
        "scope": (
            scope,
            {"checkout": wiring.checkout, "orders": wiring.orders, "session": wiring.session},
        ),
        "generator": (
            generator,
            {
                "checkout": wiring.live_checkout,
                "orders": wiring.live_orders,
                "session": wiring.live_session,
            },
        ),
    }


async def boot(graph):
    container = containers.DynamicContainer()
    known = []
    for at, (cls, edges) in enumerate(graph):
        provider = providers.Singleton(cls, *[known[edge] for edge in edges])
        setattr(container, f"p{at}", provider)
        known.append(provider)
    return [provider() for provider in known]
