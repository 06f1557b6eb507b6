"""The two servers: ``python servers.py bare|lexigram`` prints its port and serves until killed."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Annotated

import anyio
import uvicorn
from fastapi import APIRouter, Depends, FastAPI
from pydantic import BaseModel

from lexigram.web import Inject, WebHost, WebModule


class Order(BaseModel):
    number: int
    lines: list[str]


class Session:
    def __init__(self) -> None:
        self.used = 0


async def session() -> AsyncIterator[Session]:
    made = Session()
    yield made
    made.used = -1


def answer(number: int) -> Order:
    return Order(number=number, lines=["a", "b"])


def bare() -> None:
    api = FastAPI(docs_url=None, redoc_url=None)

    @api.get("/orders/{number}")
    async def plain(number: int) -> Order:
        return answer(number)

    @api.get("/scoped/{number}")
    async def scoped(number: int, one: Annotated[Session, Depends(session)]) -> Order:
        one.used += 1
        return answer(number)

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print(self.servers[0].sockets[0].getsockname()[1], flush=True)

    config = uvicorn.Config(api, host="127.0.0.1", port=0, access_log=False, log_config=None)
    Server(config).run()


def lexigram() -> None:
    from lexigram.app import Application
    from lexigram.config import LexigramConfig
    from lexigram.di import Provider

    class Parts(Provider):
        async def register(self, container):
            container.scoped(Session, factory=session)

    router = APIRouter()

    @router.get("/orders/{number}")
    async def plain(number: int) -> Order:
        return answer(number)

    @router.get("/scoped/{number}")
    async def scoped(number: int, one: Annotated[Session, Inject()]) -> Order:
        one.used += 1
        return answer(number)

    async def main() -> None:
        web = WebModule.stub(routers=[router])
        async with Application("bench", LexigramConfig(), modules=[web], providers=[Parts]) as app:
            async with app.container.get(WebHost).serving() as address:
                print(address.port, flush=True)
                await anyio.sleep_forever()

    anyio.run(main)


if __name__ == "__main__":
    {"bare": bare, "lexigram": lexigram}[sys.argv[1]]()
