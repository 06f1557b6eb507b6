"""An application with schedules: called functions, and a store they work on."""

from pathlib import Path
from tempfile import gettempdir

import anyio

from lexigram.app import Application
from lexigram.contracts.core.di import ContainerRegistrarProtocol
from lexigram.di import Provider
from lexigram.schedule import Firing, ScheduleModule, scheduled
from lexigram.sql import SqlConfig, SqlModule

DATABASE = Path(gettempdir()) / "lexigram-example-schedule.db"


class Orders:
    """What the schedules work on."""

    def __init__(self) -> None:
        self.paid = 0
        self.enough = anyio.Event()

    def pay(self) -> None:
        self.paid += 1
        if self.paid == 3:
            self.enough.set()


class OrdersProvider(Provider):
    async def register(self, container: ContainerRegistrarProtocol) -> None:
        container.singleton(Orders)


@scheduled(every=0.5, name="collect")
async def collect(orders: Orders, firing: Firing) -> None:
    """Collect payments."""
    orders.pay()
    print(f"collected for {firing.tick:%H:%M:%S.%f}"[:-5])


@scheduled("30 2 * * *", name="report", timezone="Europe/Berlin")
async def report(orders: Orders) -> None:
    """Print the number of paid orders."""
    print(f"{orders.paid} paid")


def create(database: Path = DATABASE) -> Application:
    return Application(
        "collector",
        modules=[
            SqlModule.configure(SqlConfig(url=f"sqlite:///{database}")),
            ScheduleModule.configure(schedules=[collect, report]),
        ],
        providers=[OrdersProvider()],
    )
