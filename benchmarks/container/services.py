"""What every contestant wires: the same classes, factories and checks."""

from collections.abc import AsyncIterator
from typing import Any


class Pool:
    """A singleton."""

    __slots__ = ()


class Clock:
    __slots__ = ()

    def __init__(self) -> None:
        pass


class Style:
    __slots__ = ("clock",)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock


class Report:
    """Transient; builds three others."""

    __slots__ = ("clock", "style")

    def __init__(self, style: Style, clock: Clock) -> None:
        self.style = style
        self.clock = clock


class Session:
    __slots__ = ("closed", "pool")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.closed = False


class Orders:
    __slots__ = ("session",)

    def __init__(self, session: Session) -> None:
        self.session = session


class Checkout:
    """What a request asks for: two scoped services and a singleton."""

    __slots__ = ("orders", "pool", "session")

    def __init__(self, session: Session, orders: Orders, pool: Pool) -> None:
        self.session = session
        self.orders = orders
        self.pool = pool


class LiveSession(Session):
    __slots__ = ()


class LiveOrders:
    __slots__ = ("session",)

    def __init__(self, session: LiveSession) -> None:
        self.session = session


class LiveCheckout:
    """The same where the session is opened and closed by an async generator."""

    __slots__ = ("orders", "pool", "session")

    def __init__(self, session: LiveSession, orders: LiveOrders, pool: Pool) -> None:
        self.session = session
        self.orders = orders
        self.pool = pool


async def open_session(pool: Pool) -> AsyncIterator[LiveSession]:
    session = LiveSession(pool)
    try:
        yield session
    finally:
        session.closed = True


async def load_orders(session: LiveSession) -> LiveOrders:
    return LiveOrders(session)


async def handle(checkout: Checkout) -> Checkout:
    return checkout


async def handle_live(checkout: LiveCheckout) -> LiveCheckout:
    return checkout


def check(work: str, first: Any, second: Any) -> None:
    """A contestant that does not share, separate or tear down as asked is not measured."""
    if work == "singleton":
        assert type(first) is Pool and first is second
    elif work == "transient":
        assert type(first) is Report and first is not second
        assert first.style.clock is not first.clock
    else:
        assert type(first) is (LiveCheckout if "generator" in work else Checkout)
        assert first is not second and first.session is not second.session
        assert first.orders.session is first.session
        assert type(first.pool) is Pool and first.pool is second.pool
        assert first.session.closed is ("generator" in work)
