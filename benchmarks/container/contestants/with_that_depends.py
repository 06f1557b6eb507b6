"""that-depends: scoped services are context resources, closed when the context is left."""

import itertools
from collections.abc import Iterator

from that_depends import BaseContainer, ContextScopes, Provide, container_context, inject, providers

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

NAME = "that-depends"
serial = itertools.count()


def plain_session(pool: Pool) -> Iterator[Session]:
    yield Session(pool)


def plain_orders(session: Session) -> Iterator[Orders]:
    yield Orders(session)


class Wiring(BaseContainer):
    default_scope = ContextScopes.ANY

    pool = providers.Singleton(Pool)
    clock = providers.Factory(Clock)
    style = providers.Factory(Style, clock=clock.cast)
    report = providers.Factory(Report, style=style.cast, clock=clock.cast)
    session = providers.ContextResource(plain_session, pool=pool.cast)
    orders = providers.ContextResource(plain_orders, session=session.cast)
    checkout = providers.Factory(Checkout, session=session.cast, orders=orders.cast, pool=pool.cast)


class LiveWiring(BaseContainer):
    default_scope = ContextScopes.ANY

    pool = providers.Singleton(Pool)
    session = providers.ContextResource(open_session, pool=pool.cast)
    orders = providers.AsyncFactory(load_orders, session=session.cast)
    checkout = providers.Factory(
        LiveCheckout, session=session.cast, orders=orders.cast, pool=pool.cast
    )


async def statements():
    in_scope = "async with container_context(Wiring):\n    result = await checkout.resolve()"
    names = {"container_context": container_context}
    return {
        "singleton": ("result = pool.resolve_sync()", {"pool": Wiring.pool}),
        "transient": ("result = report.resolve_sync()", {"report": Wiring.report}),
        "scope": (in_scope, {**names, "Wiring": Wiring, "checkout": Wiring.checkout}),
        "generator": (in_scope, {**names, "Wiring": LiveWiring, "checkout": LiveWiring.checkout}),
        "scope entry": ("result = await entry()", {"entry": entry(Wiring)}),
        "generator entry": ("result = await entry()", {"entry": entry(LiveWiring)}),
    }


def entry(wiring):
    @container_context(wiring)
    @inject(scope=None)
    async def handle(checkout=Provide[wiring.checkout]):
        return checkout

    return handle


async def boot(graph):
    known = []
    for cls, edges in graph:
        names = [f"a{at}" for at in range(len(edges))]
        known.append(
            providers.Singleton(cls, **{name: known[edge].cast for name, edge in zip(names, edges)})
        )
    members = {f"p{at}": provider for at, provider in enumerate(known)}
    # Names must be unique per process.
    type(BaseContainer)(f"Wiring{next(serial)}", (BaseContainer,), members)
    return [provider.resolve_sync() for provider in known]
