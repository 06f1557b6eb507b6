"""What tests left on shared servers: found by name, and removed when its process has ended.

A test removes what it made. A run that was killed cannot, so the next run does.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from attrs import frozen
from tests.names import RUN_VARIABLE, has_ended

from lexigram.testing.services import Service

_RUN_VARIABLE = f"{RUN_VARIABLE}=".encode()


@frozen(kw_only=True)
class Leftover:
    """Something of a test on a server."""

    server: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.server}: {self.kind} {self.name}"


async def remove_leftovers(
    services: Mapping[str, Service], is_left: Callable[[str], bool]
) -> list[Leftover]:
    """Remove everything that a test made and whose name ``is_left`` accepts; returns what it was."""
    removed = []
    for name, remove in _REMOVERS.items():
        if services[name].answers():
            removed += [found async for found in remove(services[name], is_left)]
    return removed


def kill_abandoned_processes() -> list[int]:
    """Kill the processes of runs that were killed: a server in a session of its own outlives them.

    They are known by the variable of their run, on systems that show it under /proc.
    """
    killed = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            variables = (process / "environ").read_bytes().split(b"\0")
            runs = [one.split(b"=")[1] for one in variables if one.startswith(_RUN_VARIABLE)]
            if any(run.isdigit() and has_ended(int(run)) for run in runs):
                os.kill(int(process.name), signal.SIGKILL)
                killed.append(int(process.name))
    return killed


async def _remove_from_postgresql(
    service: Service, is_left: Callable[[str], bool]
) -> AsyncIterator[Leftover]:
    import asyncpg

    connection = await asyncpg.connect(f"postgresql://postgres@{service.address}/test")
    try:
        for kind, names in (
            ("SCHEMA", "SELECT nspname FROM pg_namespace"),
            ("DATABASE", "SELECT datname FROM pg_database"),
        ):
            for (name,) in await connection.fetch(names):
                if is_left(name):
                    how = "CASCADE" if kind == "SCHEMA" else "WITH (FORCE)"
                    await connection.execute(f'DROP {kind} IF EXISTS "{name}" {how}')
                    yield Leftover(server=service.title, kind=kind.lower(), name=name)
    finally:
        await connection.close()


async def _remove_from_redis(
    service: Service, is_left: Callable[[str], bool]
) -> AsyncIterator[Leftover]:
    from redis.asyncio import Redis

    async with Redis.from_url(f"redis://{service.address}/0", decode_responses=True) as client:
        async for key in client.scan_iter(match="*lex-*", count=10_000):
            if is_left(key[key.index("lex-") :]):
                await client.delete(key)
                yield Leftover(server=service.title, kind="key", name=key)


async def _remove_from_nats(
    service: Service, is_left: Callable[[str], bool]
) -> AsyncIterator[Leftover]:
    async with _jetstream(service) as request:
        names = (await request("STREAM.NAMES", {})).get("streams") or []
        for name in filter(is_left, names):
            await request(f"STREAM.DELETE.{name}", {})
            yield Leftover(server=service.title, kind="stream", name=name)


@asynccontextmanager
async def _jetstream(service: Service) -> AsyncIterator[Callable[..., Any]]:
    import nats

    client = await nats.connect(f"nats://{service.address}")

    async def request(subject: str, body: object) -> dict[str, Any]:
        answer = await client.request(f"$JS.API.{subject}", json.dumps(body).encode(), timeout=30)
        return json.loads(answer.data)

    yield request
    await client.close()


async def _remove_from_rabbitmq(
    service: Service, is_left: Callable[[str], bool]
) -> AsyncIterator[Leftover]:
    listed = rabbitmqctl("list_vhosts", "name")
    for name in filter(is_left, (listed or "").split()):
        rabbitmqctl("delete_vhost", name)
        yield Leftover(server=service.title, kind="vhost", name=name)


def rabbitmqctl(*arguments: str) -> str | None:
    """What it prints, or None where it cannot be used."""
    command = shutil.which("rabbitmqctl")
    if command is None:
        return None
    done = subprocess.run([command, "-q", *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


_REMOVERS = {
    "postgresql": _remove_from_postgresql,
    "redis": _remove_from_redis,
    "nats": _remove_from_nats,
    "rabbitmq": _remove_from_rabbitmq,
}
