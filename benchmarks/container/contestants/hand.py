"""Hand-written wiring: the limit."""

from container.services import (
    Checkout,
    Clock,
    LiveCheckout,
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

NAME = "hand-written"
POOL = Pool()


def pool():
    return POOL


def report():
    return Report(Style(Clock()), Clock())


async def checkout():
    session = Session(POOL)
    return Checkout(session, Orders(session), POOL)


async def live_checkout():
    steps = open_session(POOL)
    session = await steps.__anext__()
    try:
        return LiveCheckout(session, await load_orders(session), POOL)
    finally:
        try:
            await steps.__anext__()
        except StopAsyncIteration:
            pass


async def handled():
    session = Session(POOL)
    return await handle(Checkout(session, Orders(session), POOL))


async def handled_live():
    steps = open_session(POOL)
    session = await steps.__anext__()
    try:
        return await handle_live(LiveCheckout(session, await load_orders(session), POOL))
    finally:
        try:
            await steps.__anext__()
        except StopAsyncIteration:
            pass


async def statements():
    return {
        "singleton": ("result = pool()", {"pool": pool}),
        "transient": ("result = report()", {"report": report}),
        "scope": ("result = await checkout()", {"checkout": checkout}),
        "scope entry": ("result = await checkout()", {"checkout": checkout}),
        "generator": ("result = await checkout()", {"checkout": live_checkout}),
        "generator entry": ("result = await checkout()", {"checkout": live_checkout}),
    }


async def statements_with_handler():
    """The limit of an entry if the call of the handler is counted too."""
    return {
        "scope entry": ("result = await handled()", {"handled": handled}),
        "generator entry": ("result = await handled()", {"handled": handled_live}),
    }


async def boot(graph):
    built = []
    for cls, edges in graph:
        built.append(cls(*[built[edge] for edge in edges]))
    return built
