"""A real server on a free port, and a container that counts what requests build in it."""

from contextlib import asynccontextmanager

import httpx
import pytest

from lexigram.app import Application
from lexigram.config import LexigramConfig
from lexigram.di import Provider
from lexigram.web import WebConfig, WebHost, WebModule


class Session:
    """A scoped resource: one per request."""

    def __init__(self):
        self.error = None


class Ledger:
    """What became of every session."""

    def __init__(self):
        self.opened = []
        self.closed = []

    @property
    def open(self):
        return len(self.opened) - len(self.closed)


class SessionProvider(Provider):
    async def register(self, container):
        ledger = Ledger()

        async def session():
            made = Session()
            ledger.opened.append(made)
            try:
                yield made
            except BaseException as error:
                made.error = error
                raise
            finally:
                ledger.closed.append(made)

        container.singleton(Ledger, ledger)
        container.scoped(Session, factory=session)


@asynccontextmanager
async def running(*routers, config=None, providers=(), modules=(), **options):
    """An application that serves the routers: ``(client, app)``."""
    web = WebModule.stub(config or WebConfig(port=0), routers=routers, **options)
    async with Application(
        "shop", LexigramConfig(), modules=[web, *modules], providers=[SessionProvider, *providers]
    ) as app:
        host = app.container.get(WebHost)
        async with host.serving() as address:
            async with httpx.AsyncClient(base_url=address.url, trust_env=False) as client:
                yield client, app


@pytest.fixture
def serve():
    return running


@pytest.fixture
def session_type():
    return Session


@pytest.fixture
def ledger_type():
    return Ledger
