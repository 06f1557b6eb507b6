"""Servers a test may need: where they listen, and whether they answer."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable, Mapping
from typing import NoReturn

from attrs import evolve, frozen

PROBE_SECONDS = 0.5  # a server on the same machine answers in less than a millisecond
# Below what systems give to connections (32768 and up on Linux, 49152 elsewhere).
_PORTS = range(10_000, 32_000)
_PORT_TRIES = 1_000


@frozen(kw_only=True)
class Service:
    """A server tests use where it listens."""

    name: str
    title: str
    host: str = "127.0.0.1"
    port: int

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"

    def answers(self) -> bool:
        """True when something accepts a connection at the address."""
        try:
            socket.create_connection((self.host, self.port), timeout=PROBE_SECONDS).close()
        except OSError:
            return False
        return True


KNOWN_SERVICES: Mapping[str, Service] = {
    service.name: service
    for service in (
        Service(name="postgresql", title="PostgreSQL", port=5432),
        Service(name="redis", title="Redis", port=6379),
        Service(name="rabbitmq", title="RabbitMQ", port=5672),
        Service(name="nats", title="NATS", port=4222),
    )
}


def do_without(why: str) -> NoReturn:
    """Skip the running test, or fail it where LEX_REQUIRE_SERVICES is set."""
    import pytest

    from lexigram.config import flag

    if flag("LEX_REQUIRE_SERVICES"):
        pytest.fail(f"{why}, and LEX_REQUIRE_SERVICES is set", pytrace=False)
    pytest.skip(why)


def free_port() -> int:
    """A port of this machine on which nobody listens, for a server of a test's own.

    It can be listened on again after a stop: the system gives no connection this port. It would
    one from ``bind(0)``, be it to a client that tries to reach the stopped server. Raises OSError
    where no port is free.
    """
    for _ in range(_PORT_TRIES):
        port = secrets.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"none of {_PORT_TRIES} ports from {_PORTS.start} to {_PORTS.stop} is free")


def configured_services(lines: Iterable[str]) -> dict[str, Service]:
    """The known services, at the addresses given as lines ``name = host:port``.

    A line with a name that is not known adds a service. Raises ValueError for a line that is
    not of that form.
    """
    services = dict(KNOWN_SERVICES)
    for line in lines:
        name, host, port = _parse_line(line)
        known = services.get(name) or Service(name=name, title=name, port=port)
        services[name] = evolve(known, host=host, port=port)
    return services


def _parse_line(line: str) -> tuple[str, str, int]:
    name, _, address = (part.strip() for part in line.partition("="))
    host, _, port = address.rpartition(":")
    if not (name and host and port.isdigit()):
        raise ValueError(f"{line!r} is not of the form name = host:port")
    return name, host.strip("[]"), int(port)
