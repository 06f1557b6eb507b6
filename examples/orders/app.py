from typing import Annotated, Any

from fastapi import APIRouter

from lexigram.app import Application
from lexigram.queue import BusMessage, MessageConsumer, QueueModule, TransactionalOutbox
from lexigram.sql import Database, SqlModule
from lexigram.web import Inject, WebModule
from lexigram.workflow import AbstractSaga, DurableFleet, WorkflowModule, saga_step

Db = Annotated[Database, Inject()]
Outbox = Annotated[TransactionalOutbox, Inject()]
router = APIRouter()


@router.post("/orders/{number}/{item}", status_code=202)
async def accept(number: int, item: str, db: Db, outbox: Outbox) -> None:
    order = {"number": number, "item": item}
    async with db.transaction():  # the row and the message, or neither
        await db.execute_insert("orders", order)
        await outbox.stage("orders.accepted", BusMessage(payload=order))


class Fulfilment(MessageConsumer):
    topic = "orders.accepted"

    async def handle(self, order: dict[str, Any], fleet: DurableFleet) -> None:
        await fleet.orchestrated.submit("Delivery", order, idempotency_key=str(order["number"]))


class Delivery(AbstractSaga[Any]):  # a durable run: each step is stored, any process resumes it
    def __init__(self, number: int, item: str) -> None:
        super().__init__()
        self.number, self.item = number, item

    def get_id(self) -> str:
        return f"order-{self.number}"

    @saga_step(compensation="refund")
    async def charge(self) -> None:
        print("charge order", self.number)

    async def refund(self) -> None:
        print("refund order", self.number)

    @saga_step(max_retries=1, retry_delay=5)
    async def ship(self) -> None:
        if self.item == "anvil":
            raise ValueError("too heavy")
        print("ship order", self.number)


features = [QueueModule.scope(Fulfilment), WorkflowModule.configure(workflows=[Delivery])]
web = WebModule.configure(routers=[router])
app = Application("orders", modules=[SqlModule, QueueModule, web, *features])
