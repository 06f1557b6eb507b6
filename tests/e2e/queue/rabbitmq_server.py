"""A RabbitMQ of a test's own, that it may kill and start again; data and log under its folder."""

import os
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path

import aiormq
import anyio
import pytest

from lexigram.testing.services import do_without, free_port

# Not the one in sbin: that becomes another user.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_SECONDS = 150.0  # a hang guard; a start takes six seconds
ASKED = (
    "list_queues name type durable messages_ready messages_unacknowledged consumers",
    "list_bindings source_name destination_name routing_key",
    "list_channels connection number consumer_count messages_unacknowledged messages_unconfirmed",
    "list_consumers",
)


class OwnRabbitMQ:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.port, distribution = free_port(), free_port()
        (self.folder / "plugins").write_text("[].")
        self._settings = {
            "HOME": str(self.folder),  # where Erlang keeps its cookie
            "RABBITMQ_NODENAME": f"lex{os.getpid()}{secrets.token_hex(4)}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "none"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
        }
        self._process = None

    @property
    def url(self):
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def start(self):
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(SERVER)],
                env={**os.environ, **self._settings},
                stdout=log,
                stderr=log,
                start_new_session=True,  # the script starts others; they go together
            )
        until = time.monotonic() + START_SECONDS
        while not self._greets():
            assert self._process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < until, "rabbitmq-server does not start"
            time.sleep(0.05)
        return self

    def _greets(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=0.5) as line:
                line.sendall(b"AMQP\x00\x00\x09\x01")
                return line.recv(8)[:1] == b"\x01"
        except OSError:
            return False

    def stop(self, how=signal.SIGKILL):
        if self._process is not None:
            os.killpg(self._process.pid, how)
            self._process.wait()
            self._process = None
            while self._greets():  # what the script started ends a moment later
                time.sleep(0.02)

    def ctl(self, *arguments):
        """What rabbitmqctl says about this server."""
        return subprocess.run(
            [str(SERVER.with_name("rabbitmqctl")), "-q", *arguments],
            env={**os.environ, **self._settings},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    async def evidence(self):
        """What it holds: queues with their counts, bindings, who consumes, the messages that wait
        (they come back marked as delivered before), and the end of its logs.
        """
        parts = []
        for command in ASKED:
            said = await anyio.to_thread.run_sync(self.ctl, *command.split())
            parts.append(f"$ rabbitmqctl {command}\n{said}")
        names = [line.split("\t")[0] for line in parts[0].splitlines()[2:]]
        parts += await self._list_waiting([one for one in names if not one.startswith("amq.gen")])
        parts += await anyio.to_thread.run_sync(self._read_logs)
        return "\n".join(parts)

    def _read_logs(self):
        logs = [self.folder / "server.log", *sorted((self.folder / "log").glob("*.log"))]
        return [f"{log.name}: {log.read_text(errors='replace')[-4000:]}" for log in logs]

    async def _list_waiting(self, queues):
        connection = await aiormq.connect(self.url)
        found = []
        for name in queues:
            channel = await connection.channel()
            for _ in range(20):
                raw = await channel.basic_get(name, timeout=10)
                if raw.delivery.name == "Basic.GetEmpty":
                    break
                facts = raw.delivery.redelivered, raw.header.properties.headers, raw.body[:100]
                found.append(f"{name}: {facts}")
            await channel.close()
        await connection.close()
        return found


@pytest.fixture(scope="module")
def rabbitmq_server(tmp_path_factory):
    """One server for the tests of a module: it takes seconds to start."""
    if not SERVER.exists():
        do_without("rabbitmq-server is not installed here, so the test cannot start its own")
    server = OwnRabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
    server.start()
    yield server
    server.stop()
