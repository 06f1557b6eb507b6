"""Takes the naps out of the vendor's client, for tests only.

Opening a link takes nine looks 50 ms apart, and closing one waits for a task that sleeps 1 s,
whatever the service. On a network that hardly shows; in a suite it is most of the time.
"""

import asyncio
from importlib import import_module
from types import SimpleNamespace

MODULES = [
    "azure.servicebus.aio._servicebus_sender_async",
    "azure.servicebus.aio._servicebus_receiver_async",
    "azure.servicebus._pyamqp.aio._client_async",
]
FASTER = 20
LOOK = 0.04  # seconds instead of 0.2 that a link which closes waits for a last message, twice


async def _sleep(seconds, *rest):
    await asyncio.sleep(seconds / FASTER, *rest)


def without_naps(monkeypatch):
    """The modules of the client see another ``asyncio.sleep``; nobody else does."""
    other = SimpleNamespace(**(vars(asyncio) | {"sleep": _sleep}))
    for name in MODULES:
        monkeypatch.setattr(import_module(name), "asyncio", other)
    configuration = import_module("azure.servicebus._common._configuration").Configuration
    monkeypatch.setattr(configuration, "socket_timeout", property(lambda _: LOOK, _ignore), False)


def _ignore(*_):
    pass
